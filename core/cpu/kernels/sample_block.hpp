// The two vectorised steps of sample on one row: scores, and their weights. Internal to the kernel.
#pragma once

#include "core/cpu/kernels/kernel.hpp"

namespace rlk::cpu {

// Rows of scores and weights are padded to a multiple of this with scores of -inf, which weigh nothing.
constexpr int64_t kSampleLanes = 64;

// logits as fp32, `count` of them, and the padding behind.
void sample_load(const void* logits, Dtype dtype, int64_t stride, int64_t count, float* x);

// The largest of `padded` scores; `strange` when one of them is NaN or +inf (the maximum then means nothing).
struct SampleTop {
  float max;
  bool strange;
};
SampleTop sample_top(const float* x, int64_t padded);

// The weights of `padded` scores of at most `max`; returns their sum.
uint64_t sample_weights(const float* x, int64_t padded, float max, float temperature, uint64_t* w);

}  // namespace rlk::cpu
