// The table of host services.
#include "loader/host/services.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "core/dispatch/log.hpp"
#include "loader/host/parallel.hpp"

#ifndef RLK_VERSION
#define RLK_VERSION "0.1.0"
#endif

namespace rlk::loader {
namespace {

// ---- log

void write_log(void*, int32_t level, const char* plugin_id, const char* text) {
  // A text without an end is read no further than this.
  constexpr size_t kLongestId = 64, kLongest = 4096;
  const auto view = [](const char* from, size_t most) { return std::string_view(from, strnlen(from, most)); };
  core::log_line(level, plugin_id != nullptr ? view(plugin_id, kLongestId) : "?",
                 text != nullptr ? view(text, kLongest) : "");
}
constexpr rlk_log_service kLog = {sizeof(rlk_log_service), 0, &write_log};

// ---- memory: the size stands in front of the block, one alignment unit long

constexpr uint64_t kAlignment = 64;
HostAllocator embedder;  // set before the first allocation

uint64_t whole_block(uint64_t bytes) {
  return (bytes + 2 * kAlignment - 1) / kAlignment * kAlignment;
}

void* allocate(void*, uint64_t bytes) {
  if (bytes > UINT64_MAX / 2) return nullptr;
  const uint64_t whole = whole_block(bytes);
  void* block =
      embedder.allocate != nullptr ? embedder.allocate(embedder.context, whole) : std::aligned_alloc(kAlignment, whole);
  if (block == nullptr) return nullptr;
  std::memcpy(block, &bytes, sizeof(bytes));
  return static_cast<char*>(block) + kAlignment;
}

void deallocate(void*, void* memory) {
  if (memory == nullptr) return;
  void* block = static_cast<char*>(memory) - kAlignment;
  uint64_t bytes = 0;
  std::memcpy(&bytes, block, sizeof(bytes));
  if (embedder.deallocate != nullptr) {
    embedder.deallocate(embedder.context, block, whole_block(bytes));
  } else {
    std::free(block);
  }
}
constexpr rlk_allocate_service kAllocate = {sizeof(rlk_allocate_service), 0, &allocate, &deallocate};

// ---- threads

void run_parallel(void*, int64_t n, int64_t grain, rlk_parallel_body body, void* user) {
  parallel_for(n, grain, body, user);
}
uint32_t count_threads(void*) {
  return thread_count();
}
constexpr rlk_parallel_service kParallel = {sizeof(rlk_parallel_service), 0, &run_parallel, &count_threads};

// ---- kernel cache. A replaced one is kept: a call may still be inside it.

struct KernelCacheNode {
  KernelCache cache;
  const KernelCacheNode* replaced;
};
std::atomic<const KernelCacheNode*> kernel_cache{nullptr};

const KernelCache* current_kernel_cache() {
  const KernelCacheNode* node = kernel_cache.load(std::memory_order_acquire);
  return node != nullptr ? &node->cache : nullptr;
}

rlk_status load_kernel(void*, const char* plugin_id, const char* key, void* memory, uint64_t capacity, uint64_t* size) {
  const KernelCache* cache = current_kernel_cache();
  if (cache == nullptr || !cache->load) return RLK_NOT_FOUND;
  if (plugin_id == nullptr || key == nullptr || size == nullptr) return RLK_INVALID_ARGUMENT;
  try {
    return cache->load(plugin_id, key, memory, capacity, size);
  } catch (...) {
    return RLK_INTERNAL;
  }
}

rlk_status store_kernel(void*, const char* plugin_id, const char* key, const void* memory, uint64_t size) {
  const KernelCache* cache = current_kernel_cache();
  if (cache == nullptr || !cache->store) return RLK_UNSUPPORTED;
  if (plugin_id == nullptr || key == nullptr || (memory == nullptr && size != 0)) return RLK_INVALID_ARGUMENT;
  try {
    return cache->store(plugin_id, key, memory, size);
  } catch (...) {
    return RLK_INTERNAL;
  }
}

rlk_status begin_kernel(void*, const char* plugin_id, const char* key) {
  const KernelCache* cache = current_kernel_cache();
  if (cache == nullptr || !cache->begin) return RLK_UNSUPPORTED;
  if (plugin_id == nullptr || key == nullptr) return RLK_INVALID_ARGUMENT;
  try {
    return cache->begin(plugin_id, key);
  } catch (...) {
    return RLK_INTERNAL;
  }
}

void abandon_kernel(void*, const char* plugin_id, const char* key) {
  const KernelCache* cache = current_kernel_cache();
  if (cache == nullptr || !cache->abandon || plugin_id == nullptr || key == nullptr) return;
  try {
    cache->abandon(plugin_id, key);
  } catch (...) {
    // Out of memory: threads waiting for the key ask again until it is stored or the process ends.
  }
}
constexpr rlk_kernel_cache_service kKernelCache = {
    sizeof(rlk_kernel_cache_service), 0, &load_kernel, &store_kernel, &begin_kernel, &abandon_kernel};

// ---- the table

const void* get_service(void*, const char* id) {
  if (id == nullptr) return nullptr;
  const std::string_view wanted = id;
  if (wanted == RLK_SERVICE_LOG) return &kLog;
  if (wanted == RLK_SERVICE_ALLOCATE) return &kAllocate;
  if (wanted == RLK_SERVICE_PARALLEL) return &kParallel;
  if (wanted == RLK_SERVICE_KERNEL_CACHE) return &kKernelCache;
  return nullptr;
}

constexpr rlk_host kHost = {sizeof(rlk_host), RLK_ABI_MAJOR, RLK_ABI_MINOR, RLK_ABI_DRAFT, 0, 0, "rlk",
                            RLK_VERSION,      nullptr,       &get_service};

}  // namespace

const rlk_host* host_services() {
  return &kHost;
}

const char* host_version() {
  return RLK_VERSION;
}

void set_kernel_cache(KernelCache cache) {
  auto* node = new KernelCacheNode{std::move(cache), kernel_cache.load(std::memory_order_acquire)};
  while (!kernel_cache.compare_exchange_weak(node->replaced, node, std::memory_order_acq_rel)) {
  }
}

void set_host_allocator(const HostAllocator& allocator) {
  embedder = allocator;
}

}  // namespace rlk::loader
