// The vectorised steps of sample on a part of a row: scores, their weights, and sums of those that are kept. Internal
// to the kernel.
#pragma once

#include <limits>

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

// Parts of rows of scores and weights are padded to a multiple of this with scores of -inf, which weigh nothing.
constexpr int64_t kSampleLanes = 64;

// Scores in 32 bins for each factor of e in weight, from the maximum down; what weighs nothing is in the last.
constexpr int kSampleBins = 28 * 32 + 1;

// logits as fp32, `count` of them, and the padding behind.
void sample_load(const void* logits, Dtype dtype, int64_t stride, int64_t count, float* x);

// The largest of `padded` scores; `strange` when one of them is NaN or +inf (the maximum then means nothing).
struct SampleTop {
  float max;
  bool strange;
};
// largest[i]: of the scores from i * kSampleLanes on, of so many.
SampleTop sample_top(const float* x, int64_t padded, float* largest);

// The weights of `padded` scores of at most `max`, and, unless bins is nullptr, the bin of each. A greater score is
// never in a later bin.
struct SampleSums {
  uint64_t all, heavy;  // of all weights, of those that are at least `least`
};
SampleSums sample_weights(const float* x, int64_t padded, float max, float temperature, uint64_t least, uint64_t* w,
                          uint16_t* bins);

// The sum of those of `count` weights that are at least `least` and have a score above `score`, or equal to it as well.
uint64_t sample_kept_sum(const float* x, const uint64_t* w, int64_t count, float score, bool or_equal, uint64_t least);

// keep[i] = 1 where that sum has the weight, else 0.
void sample_kept(const float* x, const uint64_t* w, int64_t count, float score, bool or_equal, uint64_t least,
                 uint8_t* keep);

}  // namespace rlk::cpu
