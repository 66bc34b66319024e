// Versions of vendors' runtimes and drivers that are known to compute wrong, found by what a plugin saw when it looked
// at its machine. The table is data: [[known_bad]] of the platforms' policy files and of the policy file
// (api/config.hpp).
#pragma once

#include <string>
#include <vector>

#include "loader/store/record.hpp"

namespace rlk::loader {

struct KnownBad {
  std::string plugin;                  // its id or backend, with globs
  std::string evidence;                // its kind: "runtime_version"
  std::string value;                   // with globs: "12.2*"
  std::vector<std::string> operators;  // "logp", or "logp:fused" for one implementation; none: all
  std::string reason;                  // what is wrong, and where that is reported
  std::string source;                  // file and line
};

// Takes out what the table names: its units fail with reason KNOWN_BAD, and the plugin becomes `partial`, or `rejected`
// when nothing verified is left. Of plugins whose id or backend is in `used_anyway` (globs) it is only a note.
void apply(const std::vector<KnownBad>& table, const std::vector<std::string>& used_anyway, PluginRecord* record);

}  // namespace rlk::loader
