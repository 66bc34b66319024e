// Clusters of emulated blocks, which run at the same time.
#pragma once

#include "emulation.hpp"

namespace rlk::emulation {

// The number of this thread's block, the shared memory of any, and a barrier of all threads of the cluster.
int block_of_cluster();
unsigned char* shared_of(int block);
void wait_for_cluster();
// Until so many threads of the block wait at its numbered barrier.
void wait_for_threads(int number, unsigned threads);

// run_grid for a grid whose size is a multiple of the cluster's. How many of its threads waited for the kernels ahead.
uint64_t run_clusters(unsigned cluster, const Dim& grid, const Dim& size, size_t shared_bytes,
                      const std::function<void()>& body);

}  // namespace rlk::emulation
