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

// Where nothing is copied the source is an address of the tensor's memory, too: it is looked at.
inline void copy_async_16(uint32_t to, const void* from, bool valid) {
  [[maybe_unused]] const unsigned char first = *static_cast<const volatile unsigned char*>(from);
  emulation::copy_later(at_shared(to), valid ? from : nullptr, 16);
}
inline void copy_async_16(uint32_t to, const void* from) {
  emulation::copy_later(at_shared(to), from, 16);
}
inline void copy_async_part(uint32_t to, const void* from, int bytes) {
  [[maybe_unused]] const unsigned char first = *static_cast<const volatile unsigned char*>(from);
  emulation::copy_later(at_shared(to), from, static_cast<size_t>(bytes));
  emulation::copy_later(at_shared(to) + bytes, nullptr, static_cast<size_t>(16 - bytes));
}
inline void zero_16(uint32_t to) {
  std::memset(at_shared(to), 0, 16);
}
inline void store_16(uint32_t to, const uint32_t (&word)[4]) {
  std::memcpy(at_shared(to), word, 16);
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

// Every lane widens the six pairs of numbers that it holds, for all of them.
template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t held[6] = {a[0], a[1], a[2], a[3], b0, b1};
  float mine[12];
  for (int r = 0; r < 6; ++r) {
    mine[2 * r] = widen_bits<T>(static_cast<uint16_t>(held[r]));
    mine[2 * r + 1] = widen_bits<T>(static_cast<uint16_t>(held[r] >> 16));
  }
  const unsigned char* all = emulation::exchange(mine, sizeof(mine));
  const int lane = emulation::lane(), row = lane / 4 * 4, column = lane % 4 * 8;
  // Columns k and k + 1 of rows lane / 4 and 8 below are registers 0 and 1 of one lane, 2 and 3 for the upper half of
  // k; rows k and k + 1 of the two columns are register 4 or 5 of two lanes.
  const auto pair_of = [all](int of_lane, int r) {
    float2 pair;
    std::memcpy(&pair, all + of_lane * emulation::kSlotBytes + 8 * r, 8);
    return pair;
  };
  for (int k = 0; k < 16; k += 2) {
    const int of = k % 8 / 2, upper = k / 8;
    const float2 high = pair_of(row + of, 2 * upper), low = pair_of(row + of, 2 * upper + 1);
    const float2 left = pair_of(column + of, 4 + upper), right = pair_of(column + 4 + of, 4 + upper);
    c[0] = c[0] + high.x * left.x + high.y * left.y;
    c[1] = c[1] + high.x * right.x + high.y * right.y;
    c[2] = c[2] + low.x * left.x + low.y * left.y;
    c[3] = c[3] + low.x * right.x + low.y * right.y;
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
