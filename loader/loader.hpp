// The whole of loading in two calls: find_plugins answers what is there and what of it can be trusted, Registrar
// (register.hpp) hands the good part to dispatch.
#pragma once

#include <vector>

#include "loader/discover/discover.hpp"
#include "loader/probe/probe.hpp"

namespace rlk::loader {

// Discovers, screens and probes; the built-in CPU plugin is the first of the result. Blocks until every plugin has its
// verdict. What failed at run time, here or in an earlier process, is taken out. options.mode is taken from
// options.environment (RLK_PROBE).
std::vector<ProbedPlugin> find_plugins(const SearchOptions& search, ProbeOptions options);

}  // namespace rlk::loader
