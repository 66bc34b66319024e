// One defect at a time, put into the simple plugin by name, so that the conformance engine can be shown to see it.
#pragma once

#include <string_view>

namespace rlk::simple {

// The active defect; empty: none. Not thread-safe: set it between conformance runs.
void set_mutant(std::string_view name);
bool mutant(std::string_view name);

}  // namespace rlk::simple
