// Clamps, and what they pass of the gradient, a choice of the caller's: versions of torch differ at the bounds.
#pragma once

#include <cmath>
#include <limits>

namespace rlk::cpu {

// A bound of which 0 means none.
inline double bound_or_none(double bound) {
  return bound > 0 ? bound : std::numeric_limits<double>::infinity();
}

// Where a number is a bound.
template <class ClampGradient>
double gradient_at_bound(ClampGradient rule) {
  return rule == ClampGradient::zero ? 0.0 : rule == ClampGradient::half ? 0.5 : 1.0;
}

// Of a clamp of x to [low, high]; a number that is both bounds passes both. A NaN passes all of it: it is not outside.
// A bound of infinity is none.
inline double clamp_gradient(double x, double low, double high, double at_bound) {
  if (x < low || x > high) return 0;
  if (std::isinf(x)) return 1;
  return (x == low ? at_bound : 1.0) * (x == high ? at_bound : 1.0);
}

}  // namespace rlk::cpu
