// The host's thread pool: what rlk.parallel offers to plugins.
#pragma once

#include <rlk/abi/host.h>

#include <cstdint>

namespace rlk::core {

// As rlk_parallel_service.parallel_for. RLK_NUM_THREADS is an upper bound; without it the caller's TBB arena decides.
void parallel_for(int64_t n, int64_t grain, rlk_parallel_body body, void* user);  // [thread-safe]
uint32_t thread_count();                                                          // [thread-safe]

}  // namespace rlk::core
