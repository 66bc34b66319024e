// Which tokens of a row are kept: min_p, top_k and top_p on scores and integer weights. Internal to the kernel.
#pragma once

#include <cstdint>

namespace rlk::cpu {

// The upper 64 bits of a product of 64-bit numbers; `low` gets the rest.
inline uint64_t multiply_high(uint64_t a, uint64_t b, uint64_t* low = nullptr) {
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(a) * b;
  if (low != nullptr) *low = static_cast<uint64_t>(product);
  return static_cast<uint64_t>(product >> 64);
}

// A number of [0, 1) in units of 2^-64, fraction dropped: scaling by a power of two is exact.
inline uint64_t fixed_point(float share) {
  return static_cast<uint64_t>(share * 18446744073709551616.0f);
}

struct SampleFilter {
  float min_p, top_p;
  int64_t top_k;
  bool joint, top_k_keeps_ties, top_p_exceeds, top_p_keeps_ties;
};

// keep[v] = 1 for the tokens kept, else 0. `other` is scratch of the same length. False: every active token is kept,
// and nothing was written.
bool sample_filter(const SampleFilter& filter, const float* x, const uint64_t* w, int64_t vocab, uint8_t* keep,
                   uint8_t* other);

}  // namespace rlk::cpu
