// Products in which a factor of 0 leaves nothing: 0 times infinity is 0 there, where IEEE 754 has a NaN.
#pragma once

#include "core/golden/dual.hpp"

namespace rlk::golden {

// Of two numbers of the formula: a NaN stays one.
inline Tracked times(const Tracked& a, const Tracked& b) {
  const bool none = a.value == 0 ? std::isinf(b.value) : b.value == 0 && std::isinf(a.value);
  return none ? Tracked{} : a * b;
}
inline Dual times(const Dual& a, const Dual& b) {
  const auto slope = [](const Tracked& slope_of_a, const Tracked& factor) {
    return slope_of_a.value == 0 && slope_of_a.error == 0 ? Tracked{} : times(slope_of_a, factor);
  };
  return {times(a.value, b.value), slope(a.slope, b.value) + slope(b.slope, a.value)};
}

// By a weight, or the gradient of a result: what 0 takes out is not looked at.
inline Tracked weighted(const Tracked& weight, const Tracked& x) {
  return weight.value == 0 ? Tracked{} : weight * x;
}
inline Dual weighted(const Tracked& weight, const Dual& x) {
  return weight.value == 0 ? Dual{} : weight * x;
}

}  // namespace rlk::golden
