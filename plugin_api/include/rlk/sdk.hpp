// The C++ layer over the plugin ABI, header-only, for plugin authors: include this one. Needs C++17.
#pragma once

#include <rlk/abi.h>
#include <rlk/sdk/call.hpp>
#include <rlk/sdk/device.hpp>
#include <rlk/sdk/error.hpp>
#include <rlk/sdk/implementation.hpp>
#include <rlk/sdk/plugin.hpp>
