// The products of plugins/cuda/kernels/warpgroup_products.cuh on the host, by the documented layouts of operands in
// shared memory. They happen at once: what is filled while a device would still read it is not noticed here.
#pragma once

#include "mma_emulation.hpp"

namespace rlk::cuda_kernels {

inline void begin_products() {}
inline void commit_products() {}
template <int kPending>
void wait_products() {}
inline void show_to_products() {}

// Element `outer` of the result's rows or columns, `inner` of the sum. Eight lines of 128 bytes follow eight at the
// stride, panels of 64 rows or columns at the leading offset; bits 7 to 9 of an address are added to bits 4 to 6.
template <class T, bool kInner>
float operand_element(uint64_t descriptor, uint32_t outer, uint32_t inner) {
  const auto field = [descriptor](int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fff) * 16; };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  const uint32_t line = kInner ? outer : inner, element = kInner ? inner : outer;
  const uint32_t address = start + element / 64 * leading + line / 8 * stride + line % 8 * 128 + element % 64 * 2;
  uint16_t bits;
  std::memcpy(&bits, at_shared(address ^ (address >> 7 & 7) << 4), 2);
  return widen_bits<T>(bits);
}

template <class T, bool kInnerA, bool kInnerB, int kN>
void multiply_group(float (&c)[kN][4], uint64_t a, uint64_t b, int add = 1) {
  const auto thread = static_cast<uint32_t>(threadIdx.x) % 128, row = thread / 32 * 16 + thread % 32 / 4;
  float left[2][16];
  for (uint32_t k = 0; k < 16; ++k) {
    left[0][k] = operand_element<T, kInnerA>(a, row, k);
    left[1][k] = operand_element<T, kInnerA>(a, row + 8, k);
  }
  for (uint32_t n = 0; n < kN; ++n) {
    for (uint32_t e = 0; e < 2; ++e) {
      if (add == 0) c[n][e] = c[n][2 + e] = 0.0f;
      for (uint32_t k = 0; k < 16; ++k) {
        const float right = operand_element<T, kInnerB>(b, 8 * n + thread % 4 * 2 + e, k);
        c[n][e] += left[0][k] * right;
        c[n][2 + e] += left[1][k] * right;
      }
    }
  }
}

}  // namespace rlk::cuda_kernels
