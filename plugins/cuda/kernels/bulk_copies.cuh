// Hopper's bulk tensor copies (TMA, sm_90a) into rings of stages, as functions: barriers in shared memory, copies of
// one operand's slab, clusters of blocks that fetch for each other, and registers that warpgroups give each other.
#pragma once

#include "attention_wgmma.h"
#include "mma.cuh"

#if defined(RLK_SIMT_PLATFORM)
#include RLK_BULK_PLATFORM
#else

// Begins a kernel of clusters of so many blocks, one to a multiprocessor.
#define RLK_CLUSTER_KERNEL(name, blocks, threads) \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, 1) name

namespace rlk::cuda_kernels {

// --- Barriers. An arrival count and bytes under way end a phase; a wait names the parity of the phase that it wants
// over.

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Between the inits and the cluster's first synchronization.
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}
// Arrives; copies will bring that many bytes.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
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
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// --- Clusters.

__device__ __forceinline__ int block_of_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// All threads of the cluster.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// --- Copies of 64 columns of the map's box of rows, by one thread. What lies beyond the tensor becomes 0.

__device__ __forceinline__ void copy_slab(uint32_t to, const cuda::TensorMap& from, int column, int row,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %3}], "
      "[%5];" ::"r"(to),
      "l"(&from), "r"(column), "r"(0), "r"(row), "r"(barrier)
      : "memory");
}
// To the same place of the blocks of the cluster whose bits are set, and their barriers.
__device__ __forceinline__ void copy_slab_to(uint32_t to, const cuda::TensorMap& from, int column, int row,
                                             uint32_t barrier, uint32_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4, %3}], [%5], %6;" ::"r"(to),
      "l"(&from), "r"(column), "r"(0), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>(blocks))
      : "memory");
}

// --- Registers of a warpgroup. The block's total stays what it was at the launch.

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace rlk::cuda_kernels

#endif
