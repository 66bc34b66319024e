// How often each sample of a batch is to be drawn again. One number per sample, in fp64.
#pragma once

#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

struct ResamplingWeightsArgs {
  enum class Method { pow, max_min, max_random } method = Method::pow;
  int64_t rows = 0;
  Array scores;
  Mask mask;  // optional
  double power = 2;
  double best_weight = 0.4, other_weight = 0.1;
  double eps = 1e-8;
  Array weights;
};

void resampling_weights(const ResamplingWeightsArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
