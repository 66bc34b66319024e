// The file itself, what it needs, what it exports.
#include "loader/register/beside.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string_view>

#include "loader/screen/elf.hpp"

namespace rlk::loader {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
constexpr size_t kMostMaps = size_t{64} << 20;

// Files that this process has mapped and that have lost their names: other files may have taken those.
std::set<std::string> replaced_files() {
  std::set<std::string> paths;
  std::istringstream maps(sdk::read_text("/proc/self/maps", kMostMaps));
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || !line.ends_with(kDeleted)) continue;
    paths.insert(line.substr(path, line.size() - path - kDeleted.size()));
  }
  return paths;
}

bool has_unique_symbols(const std::string& path) {
  struct stat status = {};
  const UniqueFd fd = open_regular(path, &status);
  if (!fd) return false;  // the load says why
  return read_elf(source_of_fd(fd.get(), static_cast<uint64_t>(status.st_size))).info.has_unique_symbols;
}

}  // namespace

std::optional<Failure> refuse_beside(const ProbedPlugin& plugin, const std::vector<LoadedFile>& loaded) {
  const std::string& path = plugin.record.path;
  const FileIdentity& file = plugin.screened.identity;
  const auto is_plugin = [&](const std::string& other) {
    return other == path ||
           std::any_of(loaded.begin(), loaded.end(), [&](const LoadedFile& one) { return one.path == other; });
  };
  for (const LoadedFile& old : loaded) {
    if (old.identity.device == file.device && old.identity.inode == file.inode)
      return Failure{&reason::kOverwritten, path + " was written into while this process ran its code", {}, {}};
  }
  if (has_unique_symbols(path)) {
    return Failure{&reason::kNeedsRestart,
                   path +
                       " defines symbols that are unique in a process (STB_GNU_UNIQUE): it would use the objects of "
                       "the file that it replaces",
                   "restart this process to use it; a plugin built with -fno-gnu-unique can be replaced",
                   {}};
  }
  const std::set<std::string> replaced = replaced_files();
  for (const auto* needed : {&plugin.screened.dependencies, &plugin.record.loaded_files}) {
    for (const std::string& library : *needed) {
      if (is_plugin(library) || replaced.count(library) == 0) continue;
      return Failure{
          &reason::kNeedsRestart,
          fmt::format("{} was verified with {}, which was replaced too: this process has the old one", path, library),
          {},
          {}};
    }
  }
  return std::nullopt;
}

}  // namespace rlk::loader
