// Clusters of blocks whose bulk tensor copies fill each other's rings (sm_90a), as functions. Beside bulk_copies.cuh.
#pragma once

#include "bulk_copies.cuh"

#if !defined(RLK_SIMT_PLATFORM)  // else RLK_BULK_PLATFORM has these, too

// Begins a kernel of clusters of so many blocks, one to a multiprocessor.
#define RLK_CLUSTER_KERNEL(name, blocks, threads) \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, 1) name

namespace rlk::cuda_kernels {

__device__ __forceinline__ int block_of_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// All threads of the cluster; behind the inits of barriers, too.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The 128 threads of a warpgroup, by one of the block's numbered barriers.
__device__ __forceinline__ void warpgroup_sync(int number) {
  asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory");
}

// At the barrier that lies there in the shared memory of that block of the cluster. Nothing that this thread has
// written is shown to the other block: a fence for that would cost more than a slab's products.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, int block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}

// Copies of 64 columns of the map's box of rows of one of its matrices, by one thread. What lies beyond the matrix
// becomes 0.
__device__ __forceinline__ void copy_box(uint32_t to, const cuda::TensorMap& from, int column, int row, int matrix,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&from), "r"(column), "r"(0), "r"(row), "r"(matrix), "r"(barrier)
      : "memory");
}
// To the same place of the blocks of the cluster whose bits are set, and their barriers.
__device__ __forceinline__ void copy_box_to(uint32_t to, const cuda::TensorMap& from, int column, int row, int matrix,
                                            uint32_t barrier, uint32_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(&from), "r"(column), "r"(0), "r"(row), "r"(matrix), "r"(barrier), "h"(static_cast<uint16_t>(blocks))
      : "memory");
}

}  // namespace rlk::cuda_kernels

#endif
