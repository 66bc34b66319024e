// Loops on threads that the embedding program gives (rlk_set_thread_pool of rlk.h): where it computes in turn with rlk
// on the CPU, the waiting threads of two pools take the processors from each other.
#pragma once

#include <rlk/abi/host.h>

#include <cstdint>

namespace rlk::loader {

// As rlk_thread_pool of rlk.h describes it.
struct ThreadPool {
  void* context = nullptr;
  uint32_t (*thread_count)(void* context) = nullptr;
  void (*run)(void* context, uint32_t n, void (*work)(void* user, uint32_t i), void* user) = nullptr;
};

// nullptr: rlk's own pool again. With RLK_THREAD_POOL=own nothing changes. [thread-safe]
void set_thread_pool(const ThreadPool* pool);

// nullptr where rlk's own pool is to be used. [thread-safe]
const ThreadPool* embedder_pool();

// How many threads a loop gets, at least 1; `limit` is the most, 0: no limit.
uint32_t thread_count_of(const ThreadPool& pool, int limit);

// As parallel_for of parallel.hpp, for n > 0 and grain > 0. A loop inside a loop runs on its caller's thread. What body
// throws leaves it on the caller's thread. [thread-safe]
void parallel_for_on(const ThreadPool& pool, int limit, int64_t n, int64_t grain, rlk_parallel_body body, void* user);

}  // namespace rlk::loader
