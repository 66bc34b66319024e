// A number and its derivative with respect to one variable, with the rules of torch's autograd: in these numbers a
// trainer's formula is written as the trainer writes it, and gives the value and the gradient.
#pragma once

#include <cmath>

namespace rlk::test {

struct Dual {
  double v = 0, d = 0;
  Dual() = default;
  Dual(double constant) : v(constant) {}  // NOLINT(google-explicit-constructor): numbers in formulas
  Dual(double value, double derivative) : v(value), d(derivative) {}
};

inline Dual variable(double value) {
  return {value, 1};
}
inline Dual detach(Dual a) {
  return {a.v, 0};
}
// a - detach(a): what straight-through estimators add.
inline Dual gradient_alone(Dual a) {
  return {0, a.d};
}
inline Dual operator-(Dual a) {
  return {-a.v, -a.d};
}
inline Dual operator+(Dual a, Dual b) {
  return {a.v + b.v, a.d + b.d};
}
inline Dual operator-(Dual a, Dual b) {
  return {a.v - b.v, a.d - b.d};
}
inline Dual operator*(Dual a, Dual b) {
  return {a.v * b.v, a.d * b.v + a.v * b.d};
}
inline Dual operator/(Dual a, Dual b) {
  return {a.v / b.v, (a.d - a.v / b.v * b.d) / b.v};
}
inline Dual exp(Dual a) {
  return {std::exp(a.v), std::exp(a.v) * a.d};
}
inline Dual log(Dual a) {
  return {std::log(a.v), a.d / a.v};
}
inline Dual tanh(Dual a) {
  return {std::tanh(a.v), a.d * (1 - std::tanh(a.v) * std::tanh(a.v))};
}
inline Dual abs(Dual a) {
  return {std::fabs(a.v), a.v > 0 ? a.d : a.v < 0 ? -a.d : 0};
}
// torch.clamp of 2.15 with bounds that are numbers: no gradient at the bounds.
inline Dual clamp(Dual a, double low, double high) {
  return {a.v < low ? low : a.v > high ? high : a.v, a.v > low && a.v < high ? a.d : 0};
}
// torch.max and torch.min of two: half to each at equality.
inline Dual max(Dual a, Dual b) {
  return a.v > b.v ? a : b.v > a.v ? b : Dual(a.v, (a.d + b.d) / 2);
}
inline Dual min(Dual a, Dual b) {
  return -max(-a, -b);
}

}  // namespace rlk::test
