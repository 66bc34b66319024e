// What kernels of the tile unit (amx.hpp) have alike. Only for their own source files.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#define RLK_CPU_HAS_AMX 1
#include <immintrin.h>
#else
#define RLK_CPU_HAS_AMX 0
#endif

namespace rlk::cpu {

#if RLK_CPU_HAS_AMX

#define RLK_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw")))

// The shapes of tiles 0 to 3 (sums), 4 and 5 (left factors), 6 and 7 (right ones).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  std::array<uint8_t, 15> reserved{};
  std::array<uint16_t, 16> bytes{};  // of a row
  std::array<uint8_t, 16> rows{};
};
static_assert(sizeof(TileConfig) == 64);

// Compilers are not told what the intrinsics read: what was written before is in memory from here on.
inline void settle_memory(const void* written) {
  asm volatile("" : : "r"(written) : "memory");
}

// Sums and right factors have `columns` numbers, or pairs of them, in a row; at most 16.
RLK_AMX inline void configure_tiles(int64_t columns) {
  TileConfig config;
  for (size_t tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? 64 : 4 * columns);
  }
  settle_memory(&config);
  _tile_loadconfig(&config);
}

#endif

// The unit's arithmetic, number by number: sum and the products of `depth` (at most 32) numbers, left one after the
// other, right in pairs pair_stride apart. Subnormal numbers are 0, but a product is not rounded before it is added.
inline float emulated_products(float sum, const uint16_t* left, const uint16_t* right, int64_t pair_stride,
                               int64_t depth = 32) {
  const auto normal = [](float x) { return x < 0x1p-126F && x > -0x1p-126F ? 0.0F : x; };
  const auto number = [&](uint16_t bits) { return normal(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)); };
  float even = 0, odd = 0;
  for (int64_t i = 0; i < depth; i += 2, right += pair_stride) {
    even = normal(std::fma(number(left[i]), number(right[0]), even));
    odd = normal(std::fma(number(left[i + 1]), number(right[1]), odd));
  }
  return normal(sum + normal(even + odd));
}

}  // namespace rlk::cpu
