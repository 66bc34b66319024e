// The matrix instruction of plugins/rocm/kernels/mfma.cuh on the host, a collective of a wave: each lane gives its
// registers and takes its part of the product, by the layout that AMD documents.
#pragma once

#include "tests/fakes/cuda/emulation.hpp"

#define RLK_MFMA_TWO_WAVES

namespace rlk::rocm_kernels {

// Register pair (r0, r1) of A or B as the four numbers that it holds, the low half of r0 first.
template <class T>
void widen_registers(float (&out)[4], uint32_t r0, uint32_t r1) {
  T held[4];
  std::memcpy(held, &r0, 4);
  std::memcpy(held + 2, &r1, 4);
  for (int i = 0; i < 4; ++i) out[i] = simt::widen(held[i]);
}

template <class T>
void multiply_add(Quad& d, uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
  static_assert(emulation::kWave == 64, "the instruction is one of waves of 64 lanes");
  struct Given {
    float a[4], b[4];
  } mine;
  widen_registers<T>(mine.a, a0, a1);
  widen_registers<T>(mine.b, b0, b1);
  const unsigned char* const all = emulation::exchange(&mine, sizeof(mine));
  const auto given = [all](int lane) -> const Given& {
    return *reinterpret_cast<const Given*>(all + lane * emulation::kSlotBytes);
  };
  const int lane = emulation::lane(), column = lane % 16;
  for (int k = 0; k < 16; k += 4) {
    const Given& right = given(column + 16 * (k / 4));
    for (int i = 0; i < 4; ++i) {
      const Given& left = given(lane / 16 * 4 + i + 16 * (k / 4));
      for (int e = 0; e < 4; ++e) d[i] = d[i] + left.a[e] * right.b[e];
    }
  }
}

}  // namespace rlk::rocm_kernels
