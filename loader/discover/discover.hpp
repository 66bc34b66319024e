// Which files might be plugins, in which order, and why some that were named are not.
#pragma once

#include <string>
#include <vector>

#include "loader/discover/environment.hpp"
#include "loader/store/record.hpp"

namespace rlk::loader {

// One place to look: an absolute path of a folder or of a file, and what named it.
struct SearchEntry {
  std::string path;
  std::string source;     // "RLK_PLUGIN_PATH", "/etc/rlk/rlk.toml", "default folder", ...
  bool optional = false;  // a missing folder is normal and leaves no record
};

struct SearchOptions {
  std::vector<SearchEntry> policy;    // from the policy file, in its order
  std::vector<SearchEntry> defaults;  // the install folders; default_folders() in production
};

// RLK_DEFAULT_PLUGIN_DIR of this build, and <folder of this library>/rlk/plugins when that is another one.
std::vector<SearchEntry> default_folders();

// Search order: RLK_ADD_PLUGIN_PATH, then either RLK_PLUGIN_PATH or, without it, the policy file and the defaults. In a
// folder, files named librlk_plugin_*.so in bytewise order; a file that is named itself may have any name. Then
// RLK_PLUGINS_SELECT and RLK_PLUGINS_DISABLE (comma separated globs on the id) and the removal of duplicates: of files
// with one id the first stays that the screen and the allow-list let pass; those before it are rejected here, each with
// its own fault.
//
// Returns one record per file found, in search order: state `discovered` (a candidate), `shadowed`, or `rejected` with
// the variable or file that is to blame in `source` and in the reason. Places (record.is_place) are rejected records
// too: what was named and is not there, what was not searched, the files of a folder that its name rule passes over,
// and an allow-list that cannot be believed.
std::vector<PluginRecord> discover(const Environment& environment, const SearchOptions& options);

// "/x/librlk_plugin_acme.so" -> "acme"; other names give their stem.
std::string id_from_file_name(const std::string& path);

}  // namespace rlk::loader
