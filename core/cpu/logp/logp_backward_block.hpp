// One block of one row of the gradient: the unit that is compiled for every instruction set. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/cpu/logp/logp_block.hpp"
#include "core/cpu/simd/walk.hpp"

namespace rlk::cpu {

// What one output row contributes.
struct RowGradient {
  double lse, grad_logp, grad_lse, grad_entropy, entropy;
  int64_t target;  // column, or outside the tensor
  // That of a sum of the scores themselves, each times its element of weights (1 without).
  double grad_scores = 0;
  const Array* weights = nullptr;

  double grad_score(int64_t column) const {
    return weights != nullptr ? grad_scores * weights->get(column) : grad_scores;
  }
  // Whether what a row's elements share is far from where fp32 ends: infinity times a p of 0 would be NaN.
  bool fits_f32(double slope) const {
    const double largest = std::max({std::fabs(grad_logp), std::fabs(grad_lse), std::fabs(grad_scores),
                                     std::fabs(grad_entropy) * std::max(1.0, std::fabs(entropy))});
    return largest * std::max(1.0, std::fabs(slope)) < 0x1p100;
  }
};

// The lse of a row as the compute type can subtract it from a capped logit: lse * temperature in two parts. The
// difference of large numbers comes first and is exact where p is not small; in base 2, x * slope and lse * log2(e)
// would each be rounded by more than that, and p would exceed 1.
template <typename T>
struct Base {
  T high, low_power;  // low_power: the rest, times the slope
  Base(const Scores& scores, double lse) {
    constexpr double kLargest = std::numeric_limits<T>::max();
    const double product = lse * scores.temperature;
    // NaN stays NaN; what leaves the range is large enough as the largest number, and the rest is infinite.
    const double bounded = product > kLargest ? kLargest : product < -kLargest ? -kLargest : product;
    high = static_cast<T>(bounded);
    const double low = std::is_same_v<T, double> && bounded == product ? std::fma(lse, scores.temperature, -product)
                                                                       : product - static_cast<double>(high);
    low_power = static_cast<T>(low * scores.slope);
  }
};
// log p of one capped logit, in fp64.
inline double log_probability(const Scores& scores, double capped, double lse) {
  const double product = lse * scores.temperature;
  if (!std::isfinite(product)) return capped / scores.temperature - lse;
  return ((capped - product) - std::fma(lse, scores.temperature, -product)) / scores.temperature;
}

// Writes the gradient of columns [begin, end) to the line grad (same dtype as logits) and adds it to
// bias_sums[end - begin] if given; the caller then goes on with the same columns of the next row, row_stride elements
// away. True when a score among them is not -inf. `row` and the line may be the same memory.
bool gradient_block(const Scores& scores, const void* row, int64_t row_stride, int64_t begin, int64_t end,
                    const RowGradient& gradient, const Line& grad, double* bias_sums);

}  // namespace rlk::cpu
