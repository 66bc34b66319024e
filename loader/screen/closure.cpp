// The linker's own search, breadth first: rpath, LD_LIBRARY_PATH, runpath, its cache, the standard folders.
#include "loader/screen/closure.hpp"

#include <fmt/core.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <sstream>
#include <utility>

#include "loader/screen/library.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

constexpr size_t kMaxCacheFile = 64 << 20;
constexpr size_t kMaxLibraries = 4096;  // a cycle cannot grow, but a hostile set of files could

#if defined(__x86_64__)
constexpr const char* kMultiarch = "x86_64-linux-gnu";
constexpr const char* kCpuLevels[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};
#else
constexpr const char* kMultiarch = "aarch64-linux-gnu";
constexpr const char* kCpuLevels[] = {""};
#endif

void replace_all(std::string* text, const std::string& from, const std::string& to) {
  for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, at + to.size()))
    text->replace(at, from.size(), to);
}

// $ORIGIN, $LIB and $PLATFORM as the linker expands them. $LIB has one value per distribution: all are tried.
std::vector<std::string> expand(const std::string& text, const std::string& origin) {
  const std::string libs[] = {std::string("lib/") + kMultiarch, "lib64", "lib"};
  const auto* platform = reinterpret_cast<const char*>(getauxval(AT_PLATFORM));
  std::vector<std::string> folders;
  std::istringstream words(text.ends_with(':') ? text + ':' : text);
  for (std::string folder; std::getline(words, folder, ':');) {
    if (folder.empty()) folder = ".";  // as the linker takes it
    for (const std::string& lib : libs) {
      std::string one = folder;
      for (const auto& [name, value] : {std::pair<const char*, std::string>{"ORIGIN", origin},
                                        {"LIB", lib},
                                        {"PLATFORM", platform == nullptr ? "" : platform}}) {
        replace_all(&one, std::string("${") + name + "}", value);
        replace_all(&one, std::string("$") + name, value);
      }
      if (std::find(folders.begin(), folders.end(), one) == folders.end()) folders.push_back(one);
    }
  }
  return folders;
}

std::string folder_of(const std::string& path) {
  return path.substr(0, path.find_last_of('/'));
}

// A file that has been placed in the closure: what it needs and which search paths it brings.
struct Node {
  std::string path;
  ElfInfo info;
  const Node* parent = nullptr;  // the file that asked for it: DT_RPATH is inherited
};

class Resolver {
public:
  explicit Resolver(const LibrarySearch& search)
      : search_(search),
        cache_(search.cache != nullptr
                   ? search.cache
                   : std::make_shared<const std::vector<LinkerCacheEntry>>(read_linker_cache(search.cache_file))) {}

  Closure run(const std::string& path, const ElfInfo& info) {
    nodes_.push_back({path, info, nullptr});
    if (!info.soname.empty()) resolved_.insert(info.soname);
    for (size_t at = 0; at < nodes_.size() && nodes_.size() < kMaxLibraries; ++at) {
      const Node& node = nodes_[at];  // a deque keeps references valid while it grows at its end
      for (const std::string& name : node.info.auxiliary) use_if_there(node, name);
      for (const std::string& name : node.info.needed) need(node, name);
      for (const std::string& names : node.info.auditors) closure_.audited.push_back({node.path, names});
    }
    return std::move(closure_);
  }

private:
  void need(const Node& node, const std::string& name) {
    const auto known = std::find_if(closure_.missing.begin(), closure_.missing.end(),
                                    [&](const MissingLibrary& library) { return library.name == name; });
    if (known != closure_.missing.end()) {
      known->needed_by.push_back(node.path);
      return;
    }
    if (!resolved_.insert(name).second) return;
    MissingLibrary attempt{name, {node.path}, {}};
    if (!find(node, name, &attempt.searched)) closure_.missing.push_back(std::move(attempt));
  }

  // The linker loads an auxiliary library as one that is needed, and goes on without one that it does not find. One
  // that comes between now and then must be trusted too: where an absolute name leads is looked at like a RUNPATH.
  void use_if_there(const Node& node, const std::string& name) {
    if (!resolved_.insert(name).second) return;
    std::vector<std::string> searched;
    if (find(node, name, &searched)) return;
    resolved_.erase(name);  // a library that needs it must still miss it
    if (name.find('/') == std::string::npos) return;
    for (const std::string& path : expand(name, folder_of(node.path))) note_folder(folder_of(path), name, node);
  }

  bool find(const Node& node, const std::string& name, std::vector<std::string>* searched) {
    if (name.find('/') != std::string::npos) {
      searched->push_back(name);
      const std::string path = expand(name, folder_of(node.path)).front();
      if (path.front() != '/') note_folder(folder_of(path), name, node);
      return accept(node, path);
    }
    // The plugin's own words first, the user's LD_LIBRARY_PATH, and the plugin's own again.
    std::vector<std::string> inherited;
    if (node.info.runpath.empty()) {
      for (const Node* from = &node; from != nullptr; from = from->parent)
        append(expand(from->info.rpath, folder_of(from->path)), &inherited);
    }
    if (in_folders(node, name, inherited, /*of_file=*/true, searched)) return true;
    if (in_folders(node, name, search_.library_path, /*of_file=*/false, searched)) return true;
    if (in_folders(node, name, expand(node.info.runpath, folder_of(node.path)), /*of_file=*/true, searched))
      return true;
    searched->push_back(search_.cache_file);
    for (const LinkerCacheEntry& entry : *cache_)
      if (entry.name == name && accept(node, entry.path)) return true;
    return in_folders(node, name, search_.standard, /*of_file=*/false, searched);
  }

  static void append(const std::vector<std::string>& from, std::vector<std::string>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  void note_folder(const std::string& path, const std::string& name, const Node& node) {
    if (noted_.insert(path).second) closure_.folders.push_back({path, name, node.path});
  }

  bool in_folders(const Node& node, const std::string& name, const std::vector<std::string>& folders, bool of_file,
                  std::vector<std::string>* searched) {
    for (const std::string& folder : folders) {
      if (std::find(searched->begin(), searched->end(), folder) != searched->end()) continue;
      searched->push_back(folder);
      if (of_file) note_folder(folder, name, node);
      for (const char* level : kCpuLevels)
        if (accept(node, fmt::format("{}/glibc-hwcaps/{}/{}", folder, level, name))) return true;
      if (accept(node, folder + "/" + name)) return true;
    }
    return false;
  }

  // As the linker does: a file of another class or machine is passed over, not an error.
  bool accept(const Node& node, const std::string& path) {
    struct stat status = {};
    const UniqueFd fd = open_regular(path, &status);
    if (!fd) return false;
    const auto library = read_library(fd.get(), status);
    if (library->status != ElfStatus::ok || library->info.machine != kHostMachine) return false;
    if (!library->info.soname.empty()) resolved_.insert(library->info.soname);
    closure_.found.push_back(path);
    nodes_.push_back({path, library->info, &node});
    return true;
  }

  const LibrarySearch& search_;
  const std::shared_ptr<const std::vector<LinkerCacheEntry>> cache_;
  std::deque<Node> nodes_;
  std::set<std::string> resolved_;  // names and sonames that are settled
  std::set<std::string> noted_;
  Closure closure_;
};

}  // namespace

std::vector<std::string> folders_of_library_path(std::string text) {
  std::replace(text.begin(), text.end(), ';', ':');
  return split(text, ':');
}

LibrarySearch LibrarySearch::of_system(const Environment& environment) {
  LibrarySearch search;
  if (const auto paths = environment.path("LD_LIBRARY_PATH")) {
    search.library_path = folders_of_library_path(*paths);
    // A relative folder there means the current one, which the linker searches but no program should rely on.
    std::erase_if(search.library_path, [](const std::string& folder) { return folder.front() != '/'; });
  }
  search.cache_file = "/etc/ld.so.cache";
  search.cache = std::make_shared<const std::vector<LinkerCacheEntry>>(read_linker_cache(search.cache_file));
  for (const char* base : {"/lib", "/usr/lib"}) {
    search.standard.push_back(fmt::format("{}/{}", base, kMultiarch));
    search.standard.push_back(std::string(base) + "64");
    search.standard.push_back(base);
  }
  return search;
}

Closure resolve_closure(const std::string& path, const ElfInfo& info, const LibrarySearch& search) {
  return Resolver(search).run(path, info);
}

std::string describe_missing(const std::vector<MissingLibrary>& missing) {
  const auto join = [](const std::vector<std::string>& items) {
    std::string out;
    for (const std::string& item : items) out += (out.empty() ? "" : ", ") + item;
    return out;
  };
  std::string out;
  for (const MissingLibrary& library : missing) {
    out += (out.empty() ? "" : "; ") +
           fmt::format("{} (needed by {}; searched {})", library.name, join(library.needed_by), join(library.searched));
  }
  return out;
}

// The format of glibc 2.2 and later, alone or after the table of an older one. Offsets of names count from the
// beginning of the newer table.
std::vector<LinkerCacheEntry> read_linker_cache(const std::string& file) {
  struct Entry {
    int32_t flags;
    uint32_t name;
    uint32_t path;
    uint32_t os_version;
    uint64_t hardware;
  };
  static_assert(sizeof(Entry) == 24);
  constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
  constexpr size_t kHeaderBytes = 48;

  std::vector<LinkerCacheEntry> entries;
  const auto bytes = read_file(file, kMaxCacheFile);
  if (!bytes) return entries;
  const size_t base = bytes->find(kMagic);
  if (base == std::string::npos) return entries;
  const std::string_view table = std::string_view(*bytes).substr(base);
  if (table.size() < kHeaderBytes) return entries;
  uint32_t count = 0;
  std::memcpy(&count, table.data() + kMagic.size(), sizeof(count));
  if (count > (table.size() - kHeaderBytes) / sizeof(Entry)) return entries;
  const auto text_at = [&](uint32_t offset) {
    if (offset >= table.size()) return std::string();
    return std::string(table.data() + offset, strnlen(table.data() + offset, table.size() - offset));
  };
  for (uint32_t i = 0; i < count; ++i) {
    Entry entry = {};
    std::memcpy(&entry, table.data() + kHeaderBytes + i * sizeof(Entry), sizeof(entry));
    entries.push_back({text_at(entry.name), text_at(entry.path)});
  }
  return entries;
}

}  // namespace rlk::loader
