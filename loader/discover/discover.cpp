// Folders and files in the order of the search path, then filters by id, then duplicates, where the first wins that is
// fit to be loaded.
#include "loader/discover/discover.hpp"

#include <dirent.h>
#include <fmt/core.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <set>
#include <utility>

#include "loader/discover/self.hpp"
#include "loader/screen/allow.hpp"
#include "loader/screen/screen.hpp"
#include "loader/store/sha256.hpp"
#include "loader/store/store.hpp"

#ifndef RLK_DEFAULT_PLUGIN_DIR
#error "RLK_DEFAULT_PLUGIN_DIR, the install folder of plugins, must be defined by the build"
#endif

namespace rlk::loader {
namespace {

constexpr std::string_view kPluginPrefix = "librlk_plugin_";
constexpr std::string_view kPluginSuffix = ".so";

bool is_plugin_name(std::string_view name) {
  return name.size() > kPluginPrefix.size() + kPluginSuffix.size() &&
         name.substr(0, kPluginPrefix.size()) == kPluginPrefix &&
         name.substr(name.size() - kPluginSuffix.size()) == kPluginSuffix;
}

PluginRecord new_record(const std::string& path, const std::string& source) {
  PluginRecord record;
  record.path = path;
  record.source = source;
  record.id = id_from_file_name(path);
  record.advance(State::discovered, Place::static_screen);
  return record;
}

PluginRecord place_record(const SearchEntry& entry, const Reason& why, std::string text) {
  PluginRecord record;
  record.is_place = true;
  record.path = entry.path;
  record.source = entry.source;
  record.advance(State::discovered, Place::static_screen);
  record.stop(State::rejected, Place::static_screen, why, std::move(text));
  return record;
}

// A file that a user may take for a plugin although its name says nothing of the kind.
bool looks_like_plugin(std::string_view name) {
  return name.ends_with(kPluginSuffix) ||
         (name.starts_with(kPluginPrefix) && name.find(".so.") != std::string_view::npos);
}

constexpr size_t kMaxNamed = 5;

// "acme.so, b.so and 3 more"
std::string list_of(const std::set<std::string>& names) {
  std::string text;
  size_t named = 0;
  for (const std::string& name : names) {
    if (named == kMaxNamed) break;
    text += (named++ == 0 ? "" : ", ") + name;
  }
  return text + (names.size() > kMaxNamed ? fmt::format(" and {} more", names.size() - kMaxNamed) : "");
}

// The names of plugins in a folder, sorted, because readdir gives no order. False: it cannot be
// read, and errno says why.
bool read_folder(const std::string& path, std::set<std::string>* plugins, std::set<std::string>* ignored) {
  const Folder folder = open_folder(path);
  if (folder == nullptr) return false;
  while (const dirent* item = readdir(folder.get())) {
    if (is_plugin_name(item->d_name)) {
      plugins->insert(item->d_name);
    } else if (looks_like_plugin(item->d_name)) {
      ignored->insert(item->d_name);
    }
  }
  return true;
}

// The id decides about filters and duplicates. It is read from the file without running it; a file that states none
// keeps the one of its name, and the screen says later what is wrong with it.
void read_identity(PluginRecord* record) {
  struct stat status = {};
  const UniqueFd fd = open_regular(record->path, &status);
  if (!fd) return;
  const ElfResult elf = read_elf(source_of_fd(fd.get(), static_cast<uint64_t>(status.st_size)), ElfDepth::dependencies);
  const std::string* text = find_abi_note(elf.info);
  std::string ignored;
  const auto note = text == nullptr ? std::nullopt : parse_abi_note(*text, &ignored);
  if (!note) return;
  record->id = note->id;
  record->backend = note->backend;
  record->version = note->version;
  record->abi = abi_text(note->abi);
}

class Search {
public:
  explicit Search(std::vector<PluginRecord>* records) : records_(*records) {}

  void add(const SearchEntry& entry) {
    if (entry.path.empty() || entry.path.front() != '/') {
      // Also a bare name: the dynamic linker would look for it in places that the entry does not name.
      return drop(entry, reason::kPathNotAbsolute,
                  fmt::format("{} names \"{}\", which does not start with /", entry.source, entry.path));
    }
    struct stat status = {};
    if (stat(entry.path.c_str(), &status) != 0) {
      if (entry.optional && errno == ENOENT) return;
      const Reason& why = errno == EACCES ? reason::kFolderUnreadable : reason::kFolderMissing;
      return drop(entry, why, fmt::format("{} names {}: {}", entry.source, entry.path, errno_text(errno)));
    }
    if (S_ISDIR(status.st_mode)) return add_folder(entry);
    records_.push_back(new_record(entry.path, entry.source));
  }

  // A place that would have been searched if the search had not been replaced.
  void leave_out(const SearchEntry& entry, const std::string& replaced) {
    std::set<std::string> plugins, ignored;
    if (!read_folder(entry.path, &plugins, &ignored) && entry.optional) return;
    records_.push_back(
        place_record(entry, reason::kSearchReplaced,
                     fmt::format("{} ({}) is not searched: RLK_PLUGIN_PATH={} replaces it{}", entry.path, entry.source,
                                 replaced, plugins.empty() ? "" : ". In it: " + list_of(plugins))));
  }

private:
  void add_folder(const SearchEntry& entry) {
    std::set<std::string> plugins, ignored;
    if (!read_folder(entry.path, &plugins, &ignored))
      return drop(entry, reason::kFolderUnreadable,
                  fmt::format("{} names the folder {}: {}", entry.source, entry.path, errno_text(errno)));
    const std::string base = entry.path.back() == '/' ? entry.path : entry.path + "/";
    for (const std::string& name : plugins) records_.push_back(new_record(base + name, entry.source));
    if (ignored.empty()) return;
    drop(entry, reason::kNameIgnored,
         fmt::format("in {} ({}) these files are not looked at: {}; expected names like librlk_plugin_acme.so",
                     entry.path, entry.source, list_of(ignored)));
  }

  void drop(const SearchEntry& entry, const Reason& why, std::string text) {
    // A file that is named explicitly is taken for a plugin, whatever its name.
    if (!is_plugin_name(entry.path.substr(entry.path.find_last_of('/') + 1))) {
      records_.push_back(place_record(entry, why, std::move(text)));
      return;
    }
    PluginRecord record = new_record(entry.path, entry.source);
    record.stop(State::rejected, Place::static_screen, why, std::move(text));
    records_.push_back(std::move(record));
  }

  std::vector<PluginRecord>& records_;
};

std::vector<SearchEntry> entries_of(const std::string& paths, const std::string& source) {
  std::vector<SearchEntry> entries;
  for (std::string& path : split(paths, ':')) entries.push_back({std::move(path), source});
  return entries;
}

// Also by another name: with a slash at its end, or through a link.
bool leads_to_any(const std::vector<std::string>& places, const std::string& path) {
  struct stat wanted = {};
  const bool is_there = stat(path.c_str(), &wanted) == 0;
  return std::any_of(places.begin(), places.end(), [&](const std::string& place) {
    struct stat status = {};
    return place == path || (is_there && place.front() == '/' && stat(place.c_str(), &status) == 0 &&
                             status.st_dev == wanted.st_dev && status.st_ino == wanted.st_ino);
  });
}

bool matches_any(const std::vector<std::string>& globs, const std::string& id) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return fnmatch(glob.c_str(), id.c_str(), 0) == 0; });
}

void apply_filters(const Environment& environment, std::vector<PluginRecord>* records) {
  const auto select = environment.get("RLK_PLUGINS_SELECT");
  const auto disable = environment.get("RLK_PLUGINS_DISABLE");
  for (PluginRecord& record : *records) {
    if (record.state != State::discovered) continue;
    if (select && !matches_any(split(*select, ','), record.id)) {
      record.stop(State::rejected, Place::static_screen, reason::kNotSelected,
                  fmt::format("RLK_PLUGINS_SELECT={} does not match the id {}", *select, record.id));
    } else if (disable && matches_any(split(*disable, ','), record.id)) {
      record.stop(State::rejected, Place::static_screen, reason::kDisabled,
                  fmt::format("RLK_PLUGINS_DISABLE={} matches the id {}", *disable, record.id));
    }
  }
}

// What can be said of a file before a byte of it runs, asked here already where it decides about other files.
class Judge {
public:
  explicit Judge(const Environment& environment) : environment_(environment) {
    allowed_ = AllowList::of(environment, Identity::of_process());
    if (allowed_.mode == AllowMode::off) return;
    Environment required = environment;  // in which nothing but the list itself can be wrong
    required.values["RLK_ALLOW"] = "require";
    list_problem_ = AllowList::of(required, Identity::of_process()).problem;
  }
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  // Refuses the file with its own fault. A file without one stays as it is, for the screen to look at again.
  bool refuses(PluginRecord* record) {
    if (!screen_) screen_ = screen_options();
    PluginRecord tried = *record;
    if (screen(&tried, *screen_)) return false;
    *record = std::move(tried);
    return true;
  }

  const AllowList& allowed() const { return allowed_; }
  const std::string& list_problem() const { return list_problem_; }  // "": it can be believed
  bool list_is_needed() const { return allowed_.mode == AllowMode::require; }

private:
  ScreenOptions screen_options() {
    ScreenOptions options;
    options.libraries = LibrarySearch::of_system(environment_);
    options.host_abi = {RLK_ABI_MAJOR, RLK_ABI_MINOR, RLK_ABI_DRAFT};
    if (list_is_needed() && list_problem_.empty()) {
      options.refuse = [this](const PluginRecord& record) {
        return allowed_.refuse(record.path, sha256_of(&nothing_kept_, record.path));
      };
    }
    return options;
  }

  const Environment& environment_;
  AllowList allowed_;
  std::string list_problem_;
  Store nothing_kept_{""};
  std::optional<ScreenOptions> screen_;  // made for the first file that is asked about: most searches ask about none
};

// Without its list no plugin is allowed. That is one fault of the list's, not one of each plugin.
void refuse_without_list(const Environment& environment, Judge& judge, std::vector<PluginRecord>* records) {
  if (judge.list_problem().empty()) return;
  const std::string& list = judge.allowed().path;
  for (PluginRecord& record : *records) {
    if (!judge.list_is_needed() || record.state != State::discovered || judge.refuses(&record)) continue;
    record.stop(State::rejected, Place::static_screen, reason::kAllowListUnusable,
                fmt::format("{} is not used: an allow-list is required, and {}", record.path, judge.list_problem()));
  }
  const std::string who = environment.origin(list.empty() ? "RLK_ALLOW" : "RLK_ALLOW_LIST");
  records->push_back(
      place_record({list.empty() ? "allow-list" : list, who}, reason::kAllowListUnusable,
                   fmt::format("{} asks for an allow-list, and {}: {}", who, judge.list_problem(),
                               judge.list_is_needed() ? "no plugin is used" : "plugins are used without it")));
}

// The first file keeps the id, unless it is refused for what can be seen of it: a user with write access to an early
// folder could otherwise take a plugin away. One that fails in its probe keeps it: what it would do instead, only the
// probe finds out, and the user did not ask for another version in its place.
void shadow_duplicates(Judge& judge, std::vector<PluginRecord>* records) {
  struct Kept {
    PluginRecord* record;
    std::optional<FileIdentity> file;
    bool is_judged = false;
  };
  std::vector<Kept> kept;
  for (PluginRecord& record : *records) {
    if (record.state != State::discovered) continue;
    const auto identity = identity_of(record.path);
    const auto is_same_file = [&](const Kept& other) {
      return identity && other.file && other.file->device == identity->device && other.file->inode == identity->inode;
    };
    // A refused one leaves the list, and another may stand behind it.
    for (auto other = kept.begin(); other != kept.end();) {
      PluginRecord& first = *other->record;
      const bool same_file = is_same_file(*other);
      if (!same_file && first.id != record.id) {
        ++other;
        continue;
      }
      if (!other->is_judged && judge.refuses(&first)) {
        other = kept.erase(other);
        continue;
      }
      other->is_judged = true;
      if (same_file) {
        record.stop(
            State::shadowed, Place::static_screen, reason::kSameFile,
            fmt::format("{} is the same file as {}, which {} found first", record.path, first.path, first.source));
      } else {
        record.stop(State::shadowed, Place::static_screen, reason::kSameId,
                    fmt::format("{} ({}) has the id {} of {} ({}), which was found first: what became of that one "
                                "stands in its own line",
                                record.path, record.source, record.id, first.path, first.source));
      }
      break;
    }
    if (record.state == State::discovered) kept.push_back({&record, identity});
  }
}

// After switching the CPU backend off a user would believe that it is gone.
void tell_no_effect(const Environment& environment, std::vector<PluginRecord>* records) {
  const auto disable = environment.get("RLK_PLUGINS_DISABLE");
  if (!disable) return;
  for (const std::string& glob : split(*disable, ',')) {
    if (glob != "cpu") continue;
    records->push_back(place_record(
        {glob, "RLK_PLUGINS_DISABLE"}, reason::kNoEffect,
        fmt::format("RLK_PLUGINS_DISABLE={} names cpu, the CPU backend, which is built in and cannot be disabled",
                    *disable)));
    return;
  }
}

}  // namespace

std::string id_from_file_name(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  if (is_plugin_name(name))
    return name.substr(kPluginPrefix.size(), name.size() - kPluginPrefix.size() - kPluginSuffix.size());
  return name.substr(0, name.find_last_of('.'));
}

std::vector<SearchEntry> default_folders() {
  std::vector<SearchEntry> folders = {{RLK_DEFAULT_PLUGIN_DIR, "default folder", true}};
  // Where this very code was loaded from: an rlk that was unpacked or moved finds its own plugins.
  std::string beside = own_folder();
  if (beside.empty()) return folders;
  // A program with rlk inside stands in bin/; the plugins are where librlk would be.
  char real[PATH_MAX];
  const std::string from_bin = beside + "/../" RLK_LIBDIR;
  if (beside.ends_with("/bin") && realpath(from_bin.c_str(), real) != nullptr) beside = real;
  beside += "/rlk/plugins";
  if (beside != folders.front().path) folders.push_back({std::move(beside), "folder beside librlk", true});
  return folders;
}

std::vector<PluginRecord> discover(const Environment& environment, const SearchOptions& options) {
  std::vector<PluginRecord> records;
  Search search(&records);
  const auto add_all = [&](const std::vector<SearchEntry>& entries) {
    for (const SearchEntry& entry : entries) search.add(entry);
  };
  for (const char* variable : {"RLK_ADD_PLUGIN_PATH", "RLK_WHEEL_PLUGINS", "RLK_PLUGIN_PATH"}) {
    const auto ignored = environment.privileged ? environment.get(variable) : std::nullopt;
    if (!ignored) continue;
    records.push_back(
        place_record({*ignored, variable}, reason::kPrivilegedProcess,
                     fmt::format("{}={} is ignored: this process runs with raised privileges", variable, *ignored)));
  }
  if (const auto added = environment.path("RLK_ADD_PLUGIN_PATH")) add_all(entries_of(*added, "RLK_ADD_PLUGIN_PATH"));
  // Set by the Python package: what installed wheels bring.
  if (const auto wheels = environment.path("RLK_WHEEL_PLUGINS")) add_all(entries_of(*wheels, "Python entry point"));
  if (const auto replaced = environment.path("RLK_PLUGIN_PATH")) {
    add_all(entries_of(*replaced, "RLK_PLUGIN_PATH"));
    std::vector<std::string> searched = split(*replaced, ':');
    for (const char* more : {"RLK_ADD_PLUGIN_PATH", "RLK_WHEEL_PLUGINS"})
      for (std::string& path : split(environment.path(more).value_or(""), ':')) searched.push_back(std::move(path));
    for (const auto* entries : {&options.policy, &options.defaults}) {
      for (const SearchEntry& entry : *entries) {
        if (!leads_to_any(searched, entry.path)) search.leave_out(entry, *replaced);
      }
    }
  } else {
    add_all(options.policy);
    add_all(options.defaults);
  }
  for (PluginRecord& record : records)
    if (record.state == State::discovered) read_identity(&record);
  apply_filters(environment, &records);
  Judge judge(environment);
  refuse_without_list(environment, judge, &records);
  shadow_duplicates(judge, &records);
  tell_no_effect(environment, &records);
  return records;
}

}  // namespace rlk::loader
