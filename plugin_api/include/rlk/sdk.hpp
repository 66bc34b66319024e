// The C++ layer over the plugin ABI, header-only, for plugin authors: include this one, and <rlk/sdk/ops/NAME.hpp> of
// each operator that is served (or <rlk/sdk/ops.hpp>, all of them). Needs C++17.
#pragma once

#include <rlk/abi.h>
#include <rlk/sdk/arguments.hpp>
#include <rlk/sdk/call.hpp>
#include <rlk/sdk/data_error.hpp>
#include <rlk/sdk/device.hpp>
#include <rlk/sdk/dtype.hpp>
#include <rlk/sdk/error.hpp>
#include <rlk/sdk/graph.hpp>
#include <rlk/sdk/implementation.hpp>
#include <rlk/sdk/kernel_cache.hpp>
#include <rlk/sdk/plugin.hpp>
#include <rlk/sdk/poll.hpp>
#include <rlk/sdk/pool.hpp>
#include <rlk/sdk/refuse.hpp>
#include <rlk/sdk/scope.hpp>
#include <rlk/sdk/symbols.hpp>
