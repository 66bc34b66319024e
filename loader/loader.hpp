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

// Of plugins that were found before, those with operators that wait get another verdict: some more of them were tried,
// the wanted ones first, here or by another process. Blocks until then. The others stay as they were, and so does one
// whose file is no more the one that was found. False when nothing waits any more, or it does no good to call again.
bool try_more(std::vector<ProbedPlugin>* found, ProbeOptions options);

}  // namespace rlk::loader
