// Hopper's bulk tensor copies (TMA, sm_90a) into rings of stages, as functions: barriers in shared memory, copies of
// one operand's slab, and registers that warpgroups give each other.
#pragma once

#include "attention_wgmma.h"
#include "mma.cuh"

#if defined(RLK_SIMT_PLATFORM)
#include RLK_BULK_PLATFORM
#else

namespace rlk::cuda_kernels {

// --- Barriers. An arrival count and bytes under way end a phase; a wait names the parity of the phase that it wants
// over.

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Between the inits and the block's first __syncthreads.
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}
// Arrives; copies will bring that many bytes.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
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

// --- Copies of 64 columns of the map's box of rows, by one thread. What lies beyond the tensor becomes 0.

__device__ __forceinline__ void copy_slab(uint32_t to, const cuda::TensorMap& from, int column, int row,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %3}], "
      "[%5];" ::"r"(to),
      "l"(&from), "r"(column), "r"(0), "r"(row), "r"(barrier)
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
