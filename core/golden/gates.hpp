// silu and gelu of a number with their slopes: the formulas that activations and gated layers share, fp64.
#pragma once

#include <cmath>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

struct Gate {
  Tracked value, slope;
};

inline Tracked erf(Tracked a) {
  const double slope = 2 / std::sqrt(M_PI) * std::exp(-a.value * a.value);
  return rounded(std::erf(a.value), slope * a.error);
}
inline Tracked tanh(Tracked a) {
  const double value = std::tanh(a.value);
  return rounded(value, (1 - value * value) * a.error);
}
inline Tracked constant(double value) {
  return {value, std::fabs(value)};
}

inline Gate silu_of(Tracked x) {
  const Tracked s = Tracked(1.0) / (Tracked(1.0) + exp(-x));
  return {x / (Tracked(1.0) + exp(-x)), s * (Tracked(1.0) + x * (Tracked(1.0) - s))};
}

inline Gate gelu_of(Tracked x, bool approximate) {
  const Tracked half = 0.5, one = 1.0;
  if (!approximate) {
    const Tracked share = half * (one + erf(x / constant(std::sqrt(2.0))));
    const Tracked density = constant(1 / std::sqrt(2 * M_PI)) * exp(-half * x * x);
    return {x * share, share + x * density};
  }
  const Tracked root = constant(std::sqrt(2 / M_PI));
  const Tracked t = tanh(root * (x + constant(0.044715) * x * x * x));
  const Tracked slope = root * (one + constant(3 * 0.044715) * x * x);
  return {half * x * (one + t), half * (one + t) + half * x * (one - t * t) * slope};
}

}  // namespace rlk::golden
