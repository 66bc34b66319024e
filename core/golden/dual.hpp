// Numbers that know how far a sensible implementation may be off, and how fast they change: a formula written once with
// them gives its value, its condition and its derivative.
//
// To a Tracked number a Dual adds the derivative in one direction, by the rules of autograd: min and max take the
// selected branch and half of each at a tie, clamp passes at equality unless a rule is given, detach stops.
#pragma once

#include "core/golden/above_tangent.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

// A number that an implementation holds rounded.
inline Tracked parameter(double value) {
  return {value, std::fabs(value)};
}

struct Dual {
  Tracked value;
  Tracked slope;

  Dual() = default;
  Dual(Tracked v, Tracked s = {}) : value(v), slope(s) {}
  explicit Dual(double exact) : value{exact, 0} {}
};

inline Dual detach(const Dual& a) {
  return {a.value};
}
inline Dual operator-(const Dual& a) {
  return {-a.value, -a.slope};
}
inline Dual operator+(const Dual& a, const Dual& b) {
  return {a.value + b.value, a.slope + b.slope};
}
inline Dual operator-(const Dual& a, const Dual& b) {
  return {a.value - b.value, a.slope - b.slope};
}
// A number without a slope has none by any factor: 0 times an infinity or a NaN would be NaN.
inline Tracked slope_times(const Tracked& slope, const Tracked& factor) {
  return slope.value == 0 && slope.error == 0 ? Tracked{} : slope * factor;
}
inline Dual operator*(const Dual& a, const Dual& b) {
  return {a.value * b.value, slope_times(a.slope, b.value) + slope_times(b.slope, a.value)};
}
// By a constant: no slope of it is even computed, and so no NaN where the number is one.
inline Dual operator*(const Tracked& constant, const Dual& a) {
  return {constant * a.value, constant * a.slope};
}
inline Dual operator/(const Dual& a, const Dual& b) {
  const Tracked value = a.value / b.value;
  return {value, (a.slope - value * b.slope) / b.value};
}
inline Dual exp(const Dual& a) {
  const Tracked value = exp(a.value);
  return {value, slope_times(a.slope, value)};
}
inline Dual min(const Dual& a, const Dual& b) {
  if (std::isnan(a.value.value) || std::isnan(b.value.value)) {
    const Tracked nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, nan};
  }
  if (a.value.value != b.value.value) return a.value.value < b.value.value ? a : b;
  return {a.value, Tracked{0.5, 0} * (a.slope + b.slope)};
}
inline Dual max(const Dual& a, const Dual& b) {
  return -min(-a, -b);
}
inline Dual clamp(const Dual& a, double low, double high) {
  if (a.value.value < low) return {parameter(low)};
  if (a.value.value > high) return {parameter(high)};
  return a;
}
template <class ClampGradient>
Dual clamp(const Dual& a, double low, double high, ClampGradient rule) {
  Dual clamped = clamp(a, low, high);
  const double passes = passed(a.value.value, low, high, rule);
  if (passes == 0) clamped.slope = {};
  if (passes > 0 && passes < 1) clamped.slope = Tracked{passes, 0} * clamped.slope;
  return clamped;
}

// The k3 estimate of a KL from a difference of log-probabilities; of +inf it is +inf.
inline Dual k3(const Dual& d) {
  const Dual power = exp(d);
  Dual estimate = power - d - Dual(1.0);
  estimate.value.value = above_tangent(d.value.value);
  if (std::isinf(power.value.value)) estimate.value = power.value;
  return estimate;
}

}  // namespace rlk::golden
