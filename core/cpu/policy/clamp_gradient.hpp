// Clamps, and what they pass of the gradient, a choice of the caller's: versions of torch differ at the bounds.
#pragma once

#include <rlk/formula/clamp.hpp>

#include <cmath>

namespace rlk::cpu {

using formula::bound_or_none;
using formula::gradient_at_bound;

// Of a clamp of x to [low, high]; a number that is both bounds passes both. A NaN passes all of it: it is not outside.
// A bound of infinity is none.
inline double clamp_gradient(double x, double low, double high, double at_bound) {
  if (x < low || x > high) return 0;
  if (std::isinf(x)) return 1;
  return (x == low ? at_bound : 1.0) * (x == high ? at_bound : 1.0);
}

}  // namespace rlk::cpu
