// What the host offers to plugins: log, memory, threads, the kernel cache.
#pragma once

#include <rlk/abi.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace rlk::loader {

// The table every plugin is given. Lives as long as the process. [thread-safe]
const rlk_host* host_services();

// "0.1.0"
const char* host_version();

// Where compiled kernels are kept. The functions obey the rules of rlk_kernel_cache_service. Until they are set every
// load answers RLK_NOT_FOUND, store and begin RLK_UNSUPPORTED.
struct KernelCache {
  std::function<rlk_status(std::string_view plugin, std::string_view key, void* memory, uint64_t capacity,
                           uint64_t* size)>
      load;
  std::function<rlk_status(std::string_view plugin, std::string_view key, const void* memory, uint64_t size)> store;
  std::function<rlk_status(std::string_view plugin, std::string_view key)> begin;
  std::function<void(std::string_view plugin, std::string_view key)> abandon;
};
void set_kernel_cache(KernelCache cache);  // [thread-safe]

// Allocates the host memory of plugins, as rlk_host_allocator of rlk.h describes it; without functions the host's own.
struct HostAllocator {
  void* context = nullptr;
  void* (*allocate)(void* context, uint64_t bytes) = nullptr;
  void (*deallocate)(void* context, void* memory, uint64_t bytes) = nullptr;
};
void set_host_allocator(const HostAllocator& allocator);  // [before any plugin is given the services]

}  // namespace rlk::loader
