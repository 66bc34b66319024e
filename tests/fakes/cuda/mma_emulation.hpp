// The tensor core instructions of plugins/cuda/kernels/mma.cuh on the host, by their documented fragment layouts.
#pragma once

#include "emulation.hpp"

namespace rlk::cuda_kernels {

using simt::bf16;
using simt::f16;

inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(pointer) - emulation::dynamic_shared());
}
inline unsigned char* at_shared(uint32_t address) {
  return emulation::dynamic_shared() + address;
}

inline void copy_async_16(uint32_t to, const void* from, bool valid) {
  emulation::copy_later(at_shared(to), valid ? from : nullptr, 16);
}
inline void commit_copies() {
  emulation::commit_copies();
}
template <int kPending>
void wait_copies() {
  emulation::wait_copies(kPending);
}

// Register i of lane l holds row l / 4, columns 2 (l % 4) and the next of matrix i, whose row r is where lane 8 i + r
// says.
inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  const unsigned char* all = emulation::exchange(&address, sizeof(address));
  const int lane = emulation::lane();
  for (int i = 0; i < 4; ++i) {
    uint32_t row;
    std::memcpy(&row, all + (8 * i + lane / 4) * emulation::kSlotBytes, 4);
    std::memcpy(&r[i], at_shared(row) + 4 * (lane % 4), 4);
  }
}
inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  const unsigned char* all = emulation::exchange(&address, sizeof(address));
  const int lane = emulation::lane();
  for (int i = 0; i < 4; ++i) {
    uint16_t pair[2];
    for (int e = 0; e < 2; ++e) {
      uint32_t row;
      std::memcpy(&row, all + (8 * i + 2 * (lane % 4) + e) * emulation::kSlotBytes, 4);
      std::memcpy(&pair[e], at_shared(row) + 2 * (lane / 4), 2);
    }
    std::memcpy(&r[i], pair, 4);
  }
}

template <class T>
float widen_bits(uint16_t bits) {
  T x;
  std::memcpy(&x, &bits, 2);
  if constexpr (std::is_same_v<T, bf16>) {
    return simt::__bfloat162float(x);
  } else {
    return simt::__half2float(x);
  }
}

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const unsigned char* all = emulation::exchange(mine, sizeof(mine));
  const int lane = emulation::lane();
  // The 16 numbers of a line: of register `first`, and of the one `step` further on for the upper half, of four lanes.
  const auto line = [&](int first_lane, int first, int step, float(&to)[16]) {
    for (int k = 0; k < 16; k += 2) {
      const int of_lane = first_lane + k % 8 / 2, r = first + step * (k / 8);
      uint16_t bits[2];
      std::memcpy(bits, all + of_lane * emulation::kSlotBytes + 4 * r, 4);
      to[k] = widen_bits<T>(bits[0]);
      to[k + 1] = widen_bits<T>(bits[1]);
    }
  };
  float rows[2][16], columns[2][16];
  for (int i = 0; i < 2; ++i) {
    line(lane / 4 * 4, i, 2, rows[i]);
    line(4 * (lane % 4 * 2 + i), 4, 1, columns[i]);
  }
  for (int e = 0; e < 4; ++e) {
    float sum = c[e];
    for (int k = 0; k < 16; ++k) sum += rows[e / 2][k] * columns[e % 2][k];
    c[e] = sum;
  }
}

template <class T>
uint32_t pack_pair(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, bf16>) {
    const bf16 pair[2] = {simt::__float2bfloat16(low), simt::__float2bfloat16(high)};
    std::memcpy(&bits, pair, 4);
  } else {
    const f16 pair[2] = {simt::__float2half_rn(low), simt::__float2half_rn(high)};
    std::memcpy(&bits, pair, 4);
  }
  return bits;
}
template <class T>
float2 unpack_pair(uint32_t bits) {
  return {widen_bits<T>(static_cast<uint16_t>(bits)), widen_bits<T>(static_cast<uint16_t>(bits >> 16))};
}

}  // namespace rlk::cuda_kernels
