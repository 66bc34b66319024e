// What rlk does not understand in the entries of a policy file.
#pragma once

#include <string>
#include <vector>

#include "core/dispatch/call/policy.hpp"

namespace rlk::core {

// One text per entry that has no effect: an unknown operator, an invalid value. Policy::make reports the
// same, as warnings or as an error.
std::vector<std::string> problems_of(const std::vector<PolicyEntry>& entries);

}  // namespace rlk::core
