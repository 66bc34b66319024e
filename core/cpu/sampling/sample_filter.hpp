// Which tokens of a row are kept: min_p, top_k and top_p on scores and integer weights. Internal to the kernel.
#pragma once

#include <rlk/formula/sample.hpp>

#include <cstdint>
#include <limits>

namespace rlk::cpu {

using formula::fixed_point, formula::multiply_high;

struct SampleFilter {
  float min_p, top_p;
  int64_t top_k;
  bool joint, top_k_keeps_ties, top_p_exceeds, top_p_keeps_ties, min_p_last;

  bool by_k(int64_t vocab) const { return top_k > 0 && top_k < vocab; }
  bool by_p() const { return top_p < 1; }
  uint64_t least() const { return formula::least_weight(min_p); }
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
