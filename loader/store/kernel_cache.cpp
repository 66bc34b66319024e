// An entry is named by the hash of its plugin and key. The process that compiles it holds a lock file of that name.
#include "loader/store/kernel_cache.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "loader/store/file.hpp"
#include "loader/store/held_file.hpp"

namespace rlk::loader {
namespace {

std::string entry_name(std::string_view plugin, std::string_view key) {
  return "kernel-" + hash_bytes(fmt::format("{}\n{}", plugin, key));
}

// The locks of this process. The kernel releases them when it dies, however it dies.
class CompileLocks {
public:
  explicit CompileLocks(std::string folder) : folder_(std::move(folder)) {}

  rlk_status take(const std::string& name) {
    if (folder_.empty()) return RLK_UNSUPPORTED;
    const std::lock_guard lock(mutex_);
    forget_the_parents();
    if (held_.count(name) > 0) return RLK_NOT_READY;  // by another thread
    const std::string path = path_of(name);
    for (;;) {
      HeldFile fd([&path] { return open_private(path, O_RDWR); });
      if (!fd) return RLK_UNSUPPORTED;  // a full or read-only disk
      if (!fd.try_lock()) return errno == EWOULDBLOCK ? RLK_NOT_READY : RLK_UNSUPPORTED;
      // Its last holder may have removed the file between open and flock.
      struct stat ours = {}, there = {};
      if (fstat(fd.get(), &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
          ours.st_dev == there.st_dev) {
        held_.emplace(name, std::move(fd));
        return RLK_OK;
      }
    }
  }

  void give_back(const std::string& name) {
    const std::lock_guard lock(mutex_);
    forget_the_parents();
    const auto held = held_.find(name);
    if (held == held_.end()) return;
    unlink(path_of(name).c_str());
    flock(held->second.get(), LOCK_UN);  // a process that was made without fork's handlers may keep it open
    held_.erase(held);
  }

private:
  // A forked process compiles nothing that its parent began, and waits for it as for any other.
  void forget_the_parents() {
    if (pid_ != getpid()) held_.clear();
    pid_ = getpid();
  }
  // Begins with a dot: the store lists no such files.
  std::string path_of(const std::string& name) const { return fmt::format("{}/.{}.lock", folder_, name); }

  const std::string folder_;
  std::mutex mutex_;
  pid_t pid_ = getpid();  // whose they are
  std::map<std::string, HeldFile> held_;
};

}  // namespace

KernelCache kernel_cache(Store* store) {
  const auto locks = std::make_shared<CompileLocks>(store->folder());
  KernelCache cache;
  cache.load = [store](std::string_view plugin, std::string_view key, void* memory, uint64_t capacity,
                       uint64_t* size) -> rlk_status {
    const auto bytes = store->get(entry_name(plugin, key));
    if (!bytes) return RLK_NOT_FOUND;
    *size = bytes->size();
    if (bytes->size() <= capacity && !bytes->empty()) std::memcpy(memory, bytes->data(), bytes->size());
    return RLK_OK;
  };
  cache.store = [store, locks](std::string_view plugin, std::string_view key, const void* memory,
                               uint64_t size) -> rlk_status {
    const std::string name = entry_name(plugin, key);
    // An entry that could not be written to disk serves this process all the same.
    const bool fits = size <= Store::kMaxBytes;
    if (fits) store->put(name, {static_cast<const char*>(memory), static_cast<size_t>(size)});
    locks->give_back(name);
    return fits ? RLK_OK : RLK_UNSUPPORTED;
  };
  cache.begin = [store, locks](std::string_view plugin, std::string_view key) -> rlk_status {
    const std::string name = entry_name(plugin, key);
    const rlk_status status = locks->take(name);
    if (status != RLK_OK || !store->get(name)) return status;
    // Stored between the caller's load and now.
    locks->give_back(name);
    return RLK_NOT_READY;
  };
  cache.abandon = [locks](std::string_view plugin, std::string_view key) { locks->give_back(entry_name(plugin, key)); };
  return cache;
}

}  // namespace rlk::loader
