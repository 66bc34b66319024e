// A map by identity, emptied when it has grown.
#include "loader/screen/library.hpp"

#include <mutex>
#include <string>
#include <unordered_map>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

constexpr size_t kMostRemembered = 4096;

struct Remembered {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const ElfResult>> by_identity;
};

// Never destroyed: searches for plugins run until the process ends.
Remembered& remembered() {
  static auto* const all = new Remembered();
  return *all;
}

}  // namespace

std::shared_ptr<const ElfResult> read_library(int fd, const struct stat& status) {
  const FileIdentity identity = identity_of(status);
  const std::string key = to_string(identity);
  Remembered& all = remembered();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto known = all.by_identity.find(key); known != all.by_identity.end()) return known->second;
  }
  auto read = std::make_shared<const ElfResult>(read_elf(source_of_fd(fd, identity.size), ElfDepth::dependencies));
  if (!is_settled(identity)) return read;
  const std::lock_guard lock(all.mutex);
  if (all.by_identity.size() >= kMostRemembered) all.by_identity.clear();
  all.by_identity.emplace(key, read);
  return read;
}

}  // namespace rlk::loader
