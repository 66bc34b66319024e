// Advantages of the groups of a GRPO batch, in two passes over differences: E[r^2] - E[r]^2 would cancel.
#include "core/cpu/kernels/grpo_groups.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
namespace {

int64_t boundary(const GrpoBatch& batch, int64_t g) {
  return batch.boundaries_are_i64 ? static_cast<const int64_t*>(batch.group_boundaries)[g * batch.boundaries_stride]
                                  : static_cast<const int32_t*>(batch.group_boundaries)[g * batch.boundaries_stride];
}

void normalise(const GrpoBatch& batch, int64_t begin, int64_t end, double* advantages) {
  const Dtype dtype = accumulator(batch.policy_logits.dtype);
  const auto reward = [&](int64_t b) { return load_element(batch.rewards, dtype, b * batch.rewards_stride); };
  const auto n = static_cast<double>(end - begin);
  double mean = 0, square = 0;
  // Differences to the first reward: equal rewards are exactly equal to their mean.
  for (int64_t b = begin; b < end; ++b) mean += reward(b) - reward(begin);
  mean /= n;
  for (int64_t b = begin; b < end; ++b) {
    advantages[b] = reward(b) - reward(begin) - mean;
    square += advantages[b] * advantages[b];
  }
  const double deviation = square > 0 ? std::sqrt(square / (batch.unbiased ? n - 1 : n)) : square;
  const double divisor = batch.additive_eps ? deviation + batch.eps : std::max(deviation, batch.eps);
  for (int64_t b = begin; b < end; ++b) advantages[b] = deviation == 0 ? 0 : advantages[b] / divisor;
}

}  // namespace

DataError check_groups(const GrpoBatch& batch) {
  for (int64_t g = 0; batch.group_boundaries != nullptr && g <= batch.groups; ++g) {
    const int64_t here = boundary(batch, g);
    const bool bad = (g == 0 && here != 0) || (g > 0 && here < boundary(batch, g - 1)) ||
                     (g == batch.groups && here != batch.sequences);
    if (bad) return {kBadSeqlens, g, here};
  }
  return {};
}

void group_advantages(const GrpoBatch& batch, double* advantages) {
  if (batch.group_boundaries != nullptr) {
    for (int64_t g = 0; g < batch.groups; ++g) normalise(batch, boundary(batch, g), boundary(batch, g + 1), advantages);
    return;
  }
  const int64_t size = batch.samples_per_prompt > 0 ? batch.samples_per_prompt : batch.sequences;
  for (int64_t begin = 0; begin < batch.sequences; begin += size) normalise(batch, begin, begin + size, advantages);
}

}  // namespace rlk::cpu
