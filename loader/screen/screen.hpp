// Is this file fit to be loaded? Everything that can be known without running a byte of it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loader/screen/closure.hpp"
#include "loader/screen/elf.hpp"
#include "loader/screen/note.hpp"
#include "loader/screen/trust.hpp"
#include "loader/store/file.hpp"
#include "loader/store/record.hpp"

namespace rlk::loader {

inline constexpr std::string_view kEntrySymbol = "rlk_plugin_entry_v1";
// More is no plugin: every start would hash it, and one of nothing but holes costs as much.
inline constexpr uint64_t kMaxPluginBytes = uint64_t{4} << 30;

struct ScreenOptions {
  Identity identity = Identity::of_process();
  LibrarySearch libraries;
  AbiVersion host_abi;
  // The policy's word on a file that passed everything else: nothing when it may be used, else why not. Unset: all may.
  std::function<std::optional<std::string>(const PluginRecord&)> refuse;
};

// What the screen learned and later steps need.
struct Screened {
  FileIdentity identity;  // of the file that was read; a load of anything else is refused
  std::string build_id;
  std::vector<std::string> dependencies;  // paths of the whole closure
  std::vector<std::string> declared_env;
  std::vector<std::string> declared_files;
};

// Takes a `discovered` record to `screened`, its path now canonical, or to `rejected` with the reason (nothing is then
// returned). No code of the plugin runs.
std::optional<Screened> screen(PluginRecord* record, const ScreenOptions& options);

}  // namespace rlk::loader
