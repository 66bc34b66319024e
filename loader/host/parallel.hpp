// The host's thread pool: what rlk.parallel offers to plugins.
#pragma once

#include <rlk/abi/host.h>

#include <cstdint>
#include <string>

namespace rlk::loader {

// As rlk_parallel_service.parallel_for. RLK_NUM_THREADS is an upper bound, without it the process's share of the
// processors (processors.hpp); below it the caller's TBB arena decides, or the pool that the embedding program gave
// (embedder_threads.hpp).
// In a process that was forked after the first loop the calling thread does all of it, in one range: the pool's threads
// were not forked with it. A process that is forked before has a pool of its own.
void parallel_for(int64_t n, int64_t grain, rlk_parallel_body body, void* user);  // [thread-safe]
uint32_t thread_count();                                                          // [thread-safe]

// How many threads loops use at most, and why: "RLK_NUM_THREADS is 4". [thread-safe]
struct ThreadLimit {
  int count;
  std::string why;
};
ThreadLimit thread_limit();

// A process that is forked from now on knows it.
void watch_forks();  // [thread-safe]

}  // namespace rlk::loader
