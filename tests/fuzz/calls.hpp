// Calls that no program means to make, given to rlk_call and to rlk_explain_json.
#pragma once

#include <string>
#include <vector>

#include "framework/fs.hpp"

namespace rlk::fuzz {

// Bytes that are read as decisions: an operator, and what is odd about its call.
std::vector<std::string> call_seeds();

// "" when both functions answered with a status, told why where they refused, and agreed whether the call is accepted.
std::string odd_call(const std::string& bytes, const testing::TempFolder& folder);

}  // namespace rlk::fuzz
