// exp(d) - 1 - d, and the divergences that are sums of it: no term is negative, and none loses its digits where two
// distributions nearly agree.
#pragma once

#include "core/golden/tracked.hpp"

namespace rlk::golden {

// How far exp lies above its tangent at 0.
inline double above_tangent(double d) {
  if (std::isinf(d)) return kInfinity;
  if (std::isnan(d) || std::fabs(d) > 0.125) return std::expm1(d) - d;
  double sum = 0, term = d * d / 2;
  for (int k = 3; std::fabs(term) > 1e-20 * sum; ++k) {
    sum += term;
    term *= d / k;
  }
  return sum;
}

// The part of one outcome in KL(x || y), x log(x / y), plus y - x, which is 0 over all outcomes.
inline double divergence_term(double x, double log_x, double y, double log_y) {
  if (x == 0) return y;
  const double d = log_y - log_x;
  if (std::fabs(d) <= 0.125) return x * above_tangent(d);
  return std::max(y - x - x * d, 0.0);  // whose first operand a NaN stays; below 0 where y was too small to be kept
}

}  // namespace rlk::golden
