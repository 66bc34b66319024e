// Choosing the folder, sealing a file with its hash, and replacing it by a rename.
#include "loader/store/store.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/dispatch/trust/process_end.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

// First line of every file; the hash covers the name too, so a renamed file is a damaged one.
std::string seal(const std::string& name, std::string_view bytes) {
  return "rlk-store-1 " + hash_bytes(name + '\n', bytes) + "\n";
}

bool is_valid_name(const std::string& name) {
  return !name.empty() && name.size() < 200 && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

// Makes the folder and those above it, private to the user.
bool make_folder(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    make_private_folder(path.substr(0, slash));  // one that exists already is as good
  return make_private_folder(path) || errno == EEXIST;
}

// A verdict and the hashes of what it depends on fit into this.
constexpr off_t kRoomBytes = 256 << 10;

// Is there no room left for what would be kept? If the file system cannot say, there is room.
bool is_full(int fd) {
  if (!may_grow_to(kRoomBytes)) return false;  // asking would be fatal
  const int error = posix_fallocate(fd, 0, kRoomBytes);
  return error == ENOSPC || error == EDQUOT;
}

enum class Use { unusable, of_root, read_only, full, whole };

// `why` says why the folder cannot be used whole. The path becomes canonical: what was looked at is what is used.
Use use_of(std::string& path, const Identity& identity, std::string* why) {
  const auto refuse = [why](std::string text, Use use = Use::unusable) {
    *why = std::move(text);
    return use;
  };
  if (path.front() != '/') return refuse(path + " does not start with /");
  if (!make_folder(path)) return refuse(path + ": " + errno_text(errno));
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return refuse(path + ": " + errno_text(errno));
  if (!S_ISDIR(status.st_mode)) return refuse(path + " is not a folder");
  // What is stored here decides what is trusted: no other user may write it, also not by having been here first. Root's
  // folders, which images carry, are believed, and not written.
  const bool is_own = status.st_uid == identity.user;
  if (!is_own && status.st_uid != 0)
    return refuse(fmt::format("{} belongs to user {}, not to {}", path, status.st_uid, identity.user));
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return refuse(path + " can be written by other users");
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) return refuse(path + ": " + errno_text(errno));
  const TrustResult trust = check_trust(real, identity);
  if (trust.problem != nullptr)
    return refuse(fmt::format("{} could be replaced by another user: {}", path, trust.text));
  path = real;
  if (!is_own)
    return refuse(fmt::format("{} belongs to user 0, not to {}: it is only read", path, identity.user), Use::of_root);
  const std::string probe = fmt::format("{}/.write-test-{}", path, getpid());
  const UniqueFd fd = open_private(probe, O_WRONLY | O_TRUNC);
  if (!fd) {
    const bool full = errno == ENOSPC || errno == EDQUOT;
    const bool closed = errno == EROFS || errno == EACCES || errno == EPERM;
    return refuse(path + ": " + errno_text(errno), full ? Use::full : closed ? Use::read_only : Use::unusable);
  }
  unlink(probe.c_str());
  if (!is_full(fd.get())) return Use::whole;
  return refuse(fmt::format("{}: no room for {} bytes; free some space", path, kRoomBytes), Use::full);
}

std::optional<std::string> read_entry(const std::string& folder, const std::string& name) {
  if (folder.empty()) return std::nullopt;
  auto bytes = read_file(folder + "/" + name, Store::kMaxBytes);
  if (!bytes) return std::nullopt;
  const size_t end = bytes->find('\n');
  if (end == std::string::npos) return std::nullopt;
  const std::string expected = seal(name, std::string_view(*bytes).substr(end + 1));
  if (bytes->compare(0, end + 1, expected) != 0) return std::nullopt;  // damaged: the next put replaces it
  bytes->erase(0, end + 1);
  return bytes;
}

void add_entries(const std::string& path, std::string_view prefix, std::map<std::string, StoreEntry>* found) {
  const Folder folder = open_folder(path);
  while (const dirent* item = folder == nullptr ? nullptr : readdir(folder.get())) {
    const std::string name = item->d_name;
    struct stat status = {};
    if (!is_valid_name(name) || !name.starts_with(prefix) || lstat((path + "/" + name).c_str(), &status) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    found->insert({name, {name, static_cast<uint64_t>(status.st_size), status.st_mtim.tv_sec}});
  }
}

}  // namespace

bool has_no_room(const std::string& folder) {
  std::string path = folder + "/.write-test-XXXXXX";
  const UniqueFd fd = make_temporary(&path);
  if (!fd) return errno == ENOSPC || errno == EDQUOT;
  unlink(path.c_str());
  return is_full(fd.get());
}

CacheFolders choose_cache_folders(const Environment& environment, const Identity& identity,
                                  std::vector<std::string>* notes, const std::string& temporary) {
  std::vector<std::string> candidates;
  if (const auto folder = environment.path("RLK_CACHE_DIR")) candidates.push_back(*folder);
  if (const auto folder = environment.path("XDG_CACHE_HOME")) candidates.push_back(*folder + "/rlk");
  if (const auto folder = environment.path("HOME")) {
    // Services have homes that do not exist, and should not get one.
    if (access(folder->c_str(), X_OK) == 0) candidates.push_back(*folder + "/.cache/rlk");
  }
  candidates.push_back(fmt::format("{}/rlk-{}", temporary, identity.user));
  CacheFolders chosen;
  std::string own;  // the first of ours: it takes nothing, and new verdicts live in memory
  for (std::string& folder : candidates) {
    std::string why;
    const Use use = use_of(folder, identity, &why);
    if (use == Use::whole) {
      if (!own.empty()) chosen.read_only.insert(chosen.read_only.begin(), own);
      chosen.full = false;
      chosen.own = std::move(folder);
      return chosen;
    }
    notes->push_back("cache folder passed over: " + why);
    if (use == Use::unusable) continue;
    if (use == Use::of_root || !own.empty()) {
      chosen.read_only.push_back(folder);
      continue;
    }
    own = folder;
    chosen.full = use == Use::full;
  }
  chosen.own = std::move(own);
  return chosen;
}

std::string choose_cache_folder(const Environment& environment, const Identity& identity,
                                std::vector<std::string>* notes, const std::string& temporary) {
  return choose_cache_folders(environment, identity, notes, temporary).own;
}

Store open_store(const Environment& environment, const Identity& identity,
                 const std::function<void(bool, const std::string&)>& tell, const std::string& temporary) {
  std::vector<std::string> notes;
  CacheFolders folders = choose_cache_folders(environment, identity, &notes, temporary);
  for (const std::string& note : notes) tell(false, note);
  notes.clear();
  std::shared_ptr<const Seed> seed = find_seed(environment, identity, &notes);
  for (const std::string& note : notes) tell(true, note);
  if ((folders.own.empty() || folders.full) && folders.read_only.empty() && seed == nullptr)
    tell(true, (folders.full ? folders.own + " has no room" : std::string("there is no folder for the cache")) +
                   ": every process tries every plugin anew. Set RLK_CACHE_DIR to a folder of your own with room, or "
                   "give processes a seed (rlk-plugins cache export)");
  return Store(std::move(folders.own), std::move(folders.read_only), std::move(seed));
}

std::optional<std::string> Store::get(const std::string& name) const {
  if (!is_valid_name(name)) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = memory_.find(name); it != memory_.end()) return it->second;
  }
  if (auto content = read_entry(folder_, name)) return content;
  for (const std::string& folder : read_only_)
    if (auto content = read_entry(folder, name)) return content;
  const std::string* const seeded = seed_ != nullptr ? seed_->get(name) : nullptr;
  return seeded != nullptr ? std::optional(*seeded) : std::nullopt;
}

bool Store::put(const std::string& name, std::string_view bytes) {
  if (!is_valid_name(name) || bytes.size() > kMaxBytes || core::end_has_begun()) return false;
  const std::string sealed = seal(name, bytes);
  if (!folder_.empty() && may_grow_to(sealed.size() + bytes.size())) {
    // No process id in the name: those of other machines and containers that share the folder may be equal.
    std::string temporary = path_of("." + name + ".XXXXXX");
    UniqueFd fd = make_temporary(&temporary);
    const bool made = static_cast<bool>(fd);
    const bool written = made && write_all(fd.get(), sealed) && write_all(fd.get(), bytes);
    fd.reset();
    if (written && rename(temporary.c_str(), path_of(name).c_str()) == 0) {
      const std::lock_guard lock(mutex_);
      memory_.erase(name);
      return true;
    }
    if (made) unlink(temporary.c_str());
  }
  const std::lock_guard lock(mutex_);
  memory_[name] = std::string(bytes);
  return folder_.empty();
}

std::vector<StoreEntry> Store::list(std::string_view prefix) const {
  std::map<std::string, StoreEntry> found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, bytes] : memory_)
      if (name.starts_with(prefix)) found[name] = {name, bytes.size(), 0};
  }
  add_entries(folder_, prefix, &found);
  for (const std::string& folder : read_only_) add_entries(folder, prefix, &found);
  std::vector<StoreEntry> entries;
  for (auto& [name, entry] : found) entries.push_back(std::move(entry));
  return entries;
}

std::string Store::place_of(const std::string& name) const {
  if (!is_valid_name(name)) return {};
  if (read_entry(folder_, name)) return path_of(name);
  for (const std::string& folder : read_only_)
    if (read_entry(folder, name)) return folder + "/" + name;
  return seed_ != nullptr && seed_->get(name) != nullptr ? seed_->path() : std::string();
}

size_t Store::clear(std::string_view prefix) {
  size_t removed = 0;
  for (const StoreEntry& entry : list(prefix)) {
    const bool on_disk = !folder_.empty() && unlink(path_of(entry.name).c_str()) == 0;
    const std::lock_guard lock(mutex_);
    removed += memory_.erase(entry.name) > 0 || on_disk ? 1 : 0;
  }
  return removed;
}

std::optional<std::string> content_hash(Store* store, const std::string& path) {
  const auto identity = identity_of(path);
  if (!identity) return std::nullopt;
  const std::string name = "content-" + hash_bytes(to_string(*identity));
  if (auto known = store->get(name)) return known;
  auto hash = hash_file(path);
  if (hash && is_settled(*identity) && identity_of(path) == identity) store->put(name, *hash);
  return hash;
}

}  // namespace rlk::loader
