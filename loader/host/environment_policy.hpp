// The policy that the environment of this process and its policy file ask for.
#pragma once

#include <vector>

#include "core/dispatch/call/policy.hpp"

namespace rlk::loader {

// As core::Policy::make, with this process's variables.
rlk_status policy_of_process(const std::vector<core::PolicyEntry>& entries, core::Policy* out, rlk_error* error);

}  // namespace rlk::loader
