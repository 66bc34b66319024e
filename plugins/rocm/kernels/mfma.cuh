// The matrix instruction of AMD's CDNA devices that the attention kernels use, as a function of a wave of 64 lanes:
// v_mfma_f32_16x16x16 of f16 (gfx908 and later) and of bf16 (gfx90a and later), a 16 x 16 x 16 product into fp32.
// Lane l holds, with g = l / 16:
//   A: row l % 16, columns 4 g to 4 g + 3      B: column l % 16, rows 4 g to 4 g + 3      (the first in the low half)
//   C and D: column l % 16, rows 4 g to 4 g + 3
// as AMD's matrix instruction calculator prints it (github.com/ROCm/amd_matrix_instruction_calculator at 2ef91896,
// --register-layout) for v_mfma_f32_16x16x16f16 of CDNA1 to 3, v_mfma_f32_16x16x16bf16_1k of CDNA2 and
// v_mfma_f32_16x16x16_bf16 of CDNA3. What is D of one product is B of the next without a move.
// On gfx90a the instruction takes subnormal f16 and bf16 numbers for 0 (MIOpen's page "MI200 MFMA behavior specifics").
#pragma once

#include "../../simt/element.cuh"

namespace rlk::rocm_kernels {

using simt::bf16;
using simt::f16;

using Quad = float __attribute__((vector_size(16)));  // four registers of C and D

}  // namespace rlk::rocm_kernels

#if defined(RLK_MFMA_PLATFORM)
#include RLK_MFMA_PLATFORM
#else

// Of a kernel: two waves of it or more share a SIMD. With half of the registers each the compiler of gfx90a and later
// keeps what the instruction adds to in ordinary ones, and moves nothing to accumulation registers and back; gfx908's
// instruction adds in those alone.
#if defined(__gfx908__)
#define RLK_MFMA_TWO_WAVES
#else
#define RLK_MFMA_TWO_WAVES __attribute__((amdgpu_waves_per_eu(2)))
#endif

namespace rlk::rocm_kernels {

// d += A B. a0, a1: the two registers of A, b0, b1 of B.
template <class T>
__device__ __forceinline__ void multiply_add(Quad& d, uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
  struct Pair {
    uint32_t low, high;
  };
  const Pair a{a0, a1}, b{b0, b1};
  if constexpr (simt::kIsBf16<T>) {
    using Four = short __attribute__((vector_size(8)));
    d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(simt::bits_as<Four>(a), simt::bits_as<Four>(b), d, 0, 0, 0);
  } else {
    using Four = _Float16 __attribute__((vector_size(8)));
    d = __builtin_amdgcn_mfma_f32_16x16x16f16(simt::bits_as<Four>(a), simt::bits_as<Four>(b), d, 0, 0, 0);
  }
}

}  // namespace rlk::rocm_kernels

#endif
