// A conformance run as JUnit XML, which continuous integration shows.
#pragma once

#include <string>

#include "loader/store/record.hpp"

namespace rlk::cli {

// A test case per unit: failed, skipped where it was declined. A plugin that came to no unit is one failed test case,
// or a skipped one where nothing is broken.
std::string junit_of(const loader::PluginRecord& record, double seconds);

}  // namespace rlk::cli
