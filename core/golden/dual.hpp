// Numbers that know how far a sensible implementation may be off, and how fast they change: a formula written once with
// them gives its value, its condition and its derivative.
//
// Rounded carries a running error in units of one eps: every operation adds an eps of its result to what its operands
// bring along. Dual adds the derivative in one direction, by the rules of autograd: min and max take the selected
// branch and half of each at a tie, clamp passes at equality, detach stops.
#pragma once

#include <cmath>

namespace rlk::golden {

struct Rounded {
  double value = 0;
  double error = 0;

  // A number that an implementation holds rounded, as a parameter.
  static Rounded parameter(double value) { return {value, std::fabs(value)}; }
};

inline Rounded operator-(Rounded a) {
  return {-a.value, a.error};
}
inline Rounded operator+(Rounded a, Rounded b) {
  const double value = a.value + b.value;
  return {value, a.error + b.error + std::fabs(value)};
}
inline Rounded operator-(Rounded a, Rounded b) {
  return a + -b;
}
inline Rounded operator*(Rounded a, Rounded b) {
  const double value = a.value * b.value;
  return {value, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + std::fabs(value)};
}
inline Rounded operator/(Rounded a, Rounded b) {
  const double value = a.value / b.value;
  return {value, (a.error + std::fabs(value) * b.error) / std::fabs(b.value) + std::fabs(value)};
}
inline Rounded exp(Rounded a) {
  const double value = std::exp(a.value);
  return {value, value == 0 ? 0 : value * (a.error + 1)};  // exp(-inf) is exact
}
inline Rounded log(Rounded a) {
  const double value = std::log(a.value);
  return {value, a.error / std::fabs(a.value) + std::fabs(value)};
}

inline Rounded sqrt(Rounded a) {
  const double value = std::sqrt(a.value);
  return {value, a.error / (2 * value) + value};
}

struct Dual {
  Rounded value;
  Rounded slope;

  Dual() = default;
  Dual(Rounded v, Rounded s = {}) : value(v), slope(s) {}
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
inline Dual operator*(const Dual& a, const Dual& b) {
  return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
inline Dual operator/(const Dual& a, const Dual& b) {
  const Rounded value = a.value / b.value;
  return {value, (a.slope - value * b.slope) / b.value};
}
inline Dual exp(const Dual& a) {
  const Rounded value = exp(a.value);
  return {value, value * a.slope};
}
inline Dual min(const Dual& a, const Dual& b) {
  if (a.value.value != b.value.value) return a.value.value < b.value.value ? a : b;
  return {a.value, Rounded{0.5, 0} * (a.slope + b.slope)};
}
inline Dual max(const Dual& a, const Dual& b) {
  return -min(-a, -b);
}
inline Dual clamp(const Dual& a, double low, double high) {
  if (a.value.value < low) return {Rounded::parameter(low)};
  if (a.value.value > high) return {Rounded::parameter(high)};
  return a;
}

}  // namespace rlk::golden
