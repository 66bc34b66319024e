// Which tokens of a row are kept: min_p, top_k and top_p on scores and integer weights. Internal to the kernel.
#pragma once

#include <cstdint>
#include <limits>

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
  bool joint, top_k_keeps_ties, top_p_exceeds, top_p_keeps_ties, min_p_last;

  bool by_k(int64_t vocab) const { return top_k > 0 && top_k < vocab; }
  bool by_p() const { return top_p < 1; }
  uint64_t least() const;  // the least weight that min_p keeps, of 2^40; 0 when it is off
};

// What is counted of the scores in a bin.
struct SampleBin {
  uint64_t weight, tokens;
};

// A row with its weights, and the bins where a boundary is looked for.
struct SampleRow {
  const float* x;
  const uint64_t* w;
  const uint16_t* bins;
  int64_t vocab;
  const SampleBin* totals;  // kSampleBins of them
  uint32_t* list;           // scratch for `vocab` ids
};

// Each filter keeps the first tokens in the order of falling score and rising id, so that one token, the last of them,
// says what is kept; two filters keep what the shorter of their lists has.
struct SampleCut {
  float score = -std::numeric_limits<float>::infinity();
  int64_t last_id = -1;  // of the tokens of this very score, the last that is kept

  bool keeps(float x, int64_t id) const { return x > score || (x == score && id <= last_id); }
};

// What top_k and top_p keep of a row. `all` and `heavy` are the sums of its weights: of all, of those that min_p keeps.
// *kept becomes the sum of weights that all three filters keep.
SampleCut sample_cut(const SampleFilter& filter, const SampleRow& row, uint64_t all, uint64_t heavy, uint64_t* kept);

}  // namespace rlk::cpu
