// Choosing the folder, sealing a file with its hash, and replacing it by a rename.
#include "loader/store/store.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

// First line of every file; the hash covers the name too, so a renamed file is a damaged one.
std::string seal(const std::string& name, std::string_view bytes) {
  return "rlk-store-1 " + hash_bytes(name + '\n' + std::string(bytes)) + "\n";
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
    mkdir(path.substr(0, slash).c_str(), 0700);  // one that exists already is as good
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

// A verdict and the hashes of what it depends on fit into this.
constexpr off_t kRoomBytes = 256 << 10;

// Is there no room left for what would be kept? Where nobody can say, there is.
bool is_full(int fd) {
  struct rlimit largest = {};
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < kRoomBytes) return false;  // asking would be fatal
  const int error = posix_fallocate(fd, 0, kRoomBytes);
  return error == ENOSPC || error == EDQUOT;
}

// Empty when the folder can be used, else why not. The path becomes canonical: what was looked at is what is used.
std::string refuse_folder(std::string& path, const Identity& identity, bool* full) {
  if (path.front() != '/') return path + " does not start with /";
  if (!make_folder(path)) return path + ": " + errno_text(errno);
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return path + ": " + errno_text(errno);
  if (!S_ISDIR(status.st_mode)) return path + " is not a folder";
  // What is stored here decides what is trusted: nobody else may write it, also not by having been here first.
  if (status.st_uid != identity.user)
    return path + " belongs to user " + std::to_string(status.st_uid) + ", not to " + std::to_string(identity.user);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return path + " can be written by other users";
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) return path + ": " + errno_text(errno);
  const TrustResult trust = check_trust(real, identity);
  if (trust.problem != nullptr) return path + " could be replaced by another user: " + trust.text;
  path = real;
  const std::string probe = path + "/.write-test-" + std::to_string(getpid());
  const UniqueFd fd(open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_TRUNC | O_NOFOLLOW, 0600));
  if (!fd) {
    *full = errno == ENOSPC || errno == EDQUOT;
    return path + ": " + errno_text(errno);
  }
  unlink(probe.c_str());
  *full = is_full(fd.get());
  return *full ? path + ": no room for " + std::to_string(kRoomBytes) + " bytes; free some space" : "";
}

}  // namespace

bool has_no_room(const std::string& folder) {
  std::string path = folder + "/.write-test-XXXXXX";
  const UniqueFd fd(mkostemp(path.data(), O_CLOEXEC));
  if (!fd) return errno == ENOSPC || errno == EDQUOT;
  unlink(path.c_str());
  return is_full(fd.get());
}

std::string choose_cache_folder(const Environment& environment, const Identity& identity,
                                std::vector<std::string>* notes) {
  std::vector<std::string> candidates;
  if (const auto folder = environment.path("RLK_CACHE_DIR")) candidates.push_back(*folder);
  if (const auto folder = environment.path("XDG_CACHE_HOME")) candidates.push_back(*folder + "/rlk");
  if (const auto folder = environment.path("HOME")) {
    // Services have homes that do not exist, and should not get one.
    if (access(folder->c_str(), X_OK) == 0) candidates.push_back(*folder + "/.cache/rlk");
  }
  candidates.push_back("/tmp/rlk-" + std::to_string(identity.user));
  std::string readable;  // the first that is full: what it remembers counts, and new verdicts live in memory
  for (std::string& folder : candidates) {
    bool full = false;
    const std::string refusal = refuse_folder(folder, identity, &full);
    if (refusal.empty()) return std::move(folder);
    notes->push_back("cache folder passed over: " + refusal);
    if (full && readable.empty()) readable = folder;
  }
  return readable;
}

std::optional<std::string> Store::get(const std::string& name) const {
  if (!is_valid_name(name)) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = memory_.find(name); it != memory_.end()) return it->second;
  }
  if (folder_.empty()) return std::nullopt;
  auto bytes = read_file(path_of(name), kMaxBytes);
  if (!bytes) return std::nullopt;
  const size_t end = bytes->find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string content = bytes->substr(end + 1);
  if (bytes->compare(0, end + 1, seal(name, content)) != 0) return std::nullopt;  // damaged: the next put replaces it
  return content;
}

bool Store::put(const std::string& name, std::string_view bytes) {
  if (!is_valid_name(name) || bytes.size() > kMaxBytes) return false;
  if (!folder_.empty()) {
    // No process id in the name: those of other machines and containers that share the folder may be equal.
    std::string temporary = path_of("." + name + ".XXXXXX");
    UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
    const bool made = static_cast<bool>(fd);
    const bool written = made && write_all(fd.get(), seal(name, bytes)) && write_all(fd.get(), bytes);
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
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(folder_.empty() ? nullptr : opendir(folder_.c_str()), &closedir);
  while (const dirent* item = folder == nullptr ? nullptr : readdir(folder.get())) {
    const std::string name = item->d_name;
    struct stat status = {};
    if (!is_valid_name(name) || !name.starts_with(prefix) || lstat(path_of(name).c_str(), &status) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    found[name] = {name, static_cast<uint64_t>(status.st_size), status.st_mtim.tv_sec};
  }
  std::vector<StoreEntry> entries;
  for (auto& [name, entry] : found) entries.push_back(std::move(entry));
  return entries;
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
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  constexpr int64_t kSettledNs = 2'000'000'000;
  const bool settled =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - identity->changed_ns > kSettledNs;
  if (hash && settled && identity_of(path) == identity) store->put(name, *hash);
  return hash;
}

}  // namespace rlk::loader
