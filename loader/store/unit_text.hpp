// The units of a record as text that is read fast. The built-in CPU has thousands of them, which say nearly the same:
// as JSON they are megabytes, and reading those was most of a warm start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/conformance/conformance.hpp"

namespace rlk::loader {

// "WORDS UNITS\n", each different word as "BYTES:word\n", then a line of numbers for each unit: places of words,
// verdict, classes, cases, errors.
std::string units_to_text(const std::vector<core::UnitResult>& units);

// False with `error` set when the text is not one; never throws but bad_alloc. Words stand for many: what all units
// would hold together is bounded.
bool units_from_text(std::string_view text, std::vector<core::UnitResult>* units, std::string* error);

}  // namespace rlk::loader
