// The random numbers of the declarations, written for obviousness: Philox4x32-10 with a key and a counter of 64 + 64
// bits.
#pragma once

#include <array>
#include <cstdint>

namespace rlk::golden {

// o0 + 2^32 o1 of its four words.
inline uint64_t philox(uint64_t seed, uint64_t row_id, uint64_t step) {
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(row_id), static_cast<uint32_t>(row_id >> 32),
                               static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c[0] + (uint64_t{c[1]} << 32);
}

}  // namespace rlk::golden
