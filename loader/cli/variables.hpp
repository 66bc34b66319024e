// Which environment variables does rlk read, and what is wrong with their values?
#pragma once

#include <string>
#include <vector>

#include "loader/discover/environment.hpp"

namespace rlk::cli {

// RLK_OP_<NAME> of each operator among them.
std::vector<std::string> variable_names();

// What is wrong with a variable's value, "" when nothing is or only dispatch can tell.
std::string problem_of_value(const std::string& name, const std::string& value);

// Of all that are set: "RLK_FALLBACK is 'strikt', did you mean 'strict'?".
std::vector<std::string> problems_of_variables(const loader::Environment& environment);

// After they were reported: code that reads them next, here or in a child process, finds what it would use instead, and
// does not report them again.
void forget_misspelt_variables();

}  // namespace rlk::cli
