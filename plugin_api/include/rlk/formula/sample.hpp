// The integers of sample: what every implementation has to the bit. Plain functions of a number.
#pragma once

#include <cstdint>

#if defined(RLK_FORMULA)
#define RLK_FORMULA_OF_SAMPLES RLK_FORMULA
#else
#define RLK_FORMULA_OF_SAMPLES inline
#endif

namespace rlk::formula {

// The upper 64 bits of a product of 64-bit numbers; `low` gets the rest.
RLK_FORMULA_OF_SAMPLES uint64_t multiply_high(uint64_t a, uint64_t b, uint64_t* low = nullptr) {
  const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), upper = (middle & 0xffffffffu) + a0 * b1;
  if (low != nullptr) *low = a * b;
  return a1 * b1 + (middle >> 32) + (upper >> 32);
}

// A number of [0, 1) in units of 2^-64, fraction dropped: scaling by a power of two is exact.
RLK_FORMULA_OF_SAMPLES uint64_t fixed_point(float share) {
  return static_cast<uint64_t>(share * 18446744073709551616.0f);
}

// The least weight, of 2^40, that min_p keeps; 0 when it is off.
RLK_FORMULA_OF_SAMPLES uint64_t least_weight(float min_p) {
  if (!(min_p > 0)) return 0;
  constexpr double kOne = 0x1p40;
  const double scaled = static_cast<double>(min_p) * kOne;
  if (scaled >= kOne) return uint64_t{1} << 40;
  const auto whole = static_cast<uint64_t>(scaled);
  return static_cast<double>(whole) < scaled ? whole + 1 : whole;
}

// The weight of a score that is u above the largest one, divided by the temperature: 2^40 at 0, 0 from -28 down.
RLK_FORMULA_OF_SAMPLES uint64_t sample_weight(float u) {
  if (!(u > -28.0f)) return 0;
  constexpr uint64_t kTopExponent = uint64_t{40} << 56;  // of the maximum
  const uint64_t spent = static_cast<uint64_t>(static_cast<uint32_t>(-u * 67108864.0f)) * 1549082005u;
  if (spent > kTopExponent) return 0;
  const uint64_t distance = kTopExponent - spent;
  const auto g = static_cast<uint32_t>(distance >> 24);
  // 2^g on [0, 1) in units of 2^-31, highest power first; below 2^32.
  const auto scaled = [g](uint32_t h) { return static_cast<uint32_t>(static_cast<uint64_t>(h) * g >> 32); };
  uint32_t h = 44521;
  h = 313739u + scaled(h);
  h = 2875277u + scaled(h);
  h = 20650546u + scaled(h);
  h = 119194876u + scaled(h);
  h = 515882451u + scaled(h);
  h = 1488522236u + scaled(h);
  h = 2147483648u + scaled(h);
  return static_cast<uint64_t>(h) << 9 >> (40 - (distance >> 56));
}

// 64 random bits of Philox4x32-10: key `seed`, counter (row_id, step), the first two of its four words.
RLK_FORMULA_OF_SAMPLES uint64_t sample_random(uint64_t seed, uint64_t row_id, uint64_t step) {
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  uint64_t even = row_id, odd = step;  // (c1, c0) and (c3, c2)
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t a = (even & 0xffffffffu) * 0xD2511F53u, b = (odd & 0xffffffffu) * 0xCD9E8D57u;
    const uint64_t c0 = (b >> 32) ^ (even >> 32) ^ k0, c2 = (a >> 32) ^ (odd >> 32) ^ k1;
    even = b << 32 | c0;
    odd = a << 32 | c2;
  }
  return even;
}

}  // namespace rlk::formula
