// An entry is named by the hash of its plugin and key.
#include "loader/kernel_cache.hpp"

#include <cstring>
#include <string>

#include "loader/file.hpp"

namespace rlk::loader {
namespace {

std::string entry_name(std::string_view plugin, std::string_view key) {
  return "kernel-" + hash_bytes(std::string(plugin) + '\n' + std::string(key));
}

}  // namespace

core::KernelCache kernel_cache(Store* store) {
  core::KernelCache cache;
  cache.load = [store](std::string_view plugin, std::string_view key, void* memory, uint64_t capacity,
                       uint64_t* size) -> rlk_status {
    const auto bytes = store->get(entry_name(plugin, key));
    if (!bytes) return RLK_NOT_FOUND;
    *size = bytes->size();
    if (bytes->size() <= capacity && !bytes->empty()) std::memcpy(memory, bytes->data(), bytes->size());
    return RLK_OK;
  };
  cache.store = [store](std::string_view plugin, std::string_view key, const void* memory,
                        uint64_t size) -> rlk_status {
    if (size > Store::kMaxBytes) return RLK_UNSUPPORTED;
    // An entry that could not be written to disk serves this process all the same.
    store->put(entry_name(plugin, key), {static_cast<const char*>(memory), static_cast<size_t>(size)});
    return RLK_OK;
  };
  return cache;
}

}  // namespace rlk::loader
