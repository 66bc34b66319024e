// Which files are the policy of a process: the machine's, and the vendors' beside their plugins.
#pragma once

#include <string>
#include <vector>

#include "loader/api/config.hpp"
#include "loader/discover/discover.hpp"
#include "loader/discover/environment.hpp"

namespace rlk::loader {

// The files of this process's policy: the one that RLK_CONFIG names, else the machine's, which are /etc/rlk/policy.toml
// and then /etc/rlk/policy.d/*.toml by their names, those that there are. root stands before /etc.
std::vector<std::string> policy_files(const Environment& environment, const std::string& root = "");

// What the platforms' own files say: rlk_policy_BACKEND.toml in the folders that plugins are looked for in. Their [off]
// and [dispatch] OP = ... are for calls on that backend's devices, their [[known_bad]] for any plugin. Weaker than
// everything else; the first file of a backend counts. A file that another user could replace, or that says anything
// else, is left out with a warning.
void add_platform_policies(const Environment& environment, const std::vector<SearchEntry>& defaults, Config* config);

}  // namespace rlk::loader
