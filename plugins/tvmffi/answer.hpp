// Which calls a kernel of the manifest serves.
#pragma once

#include <rlk/sdk/refuse.hpp>

#include <vector>

#include "plugins/tvmffi/manifest.hpp"

namespace rlk::tvmffi {

// The call's parameters as tvm-ffi's values: doubles, and integers for the others.
std::vector<Any> values_of(const Operator& op, const rlk_call_desc& desc);

sdk::Support answer(const Kernel& kernel, const rlk_call_desc& desc);

}  // namespace rlk::tvmffi
