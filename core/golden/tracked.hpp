// A number that knows its condition: the first-order effect of one-eps relative errors in every operation so far. For
// operators with short formulas, where the condition then stands in the formula itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/golden.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Tracked {
  double value = 0;
  double error = 0;  // in eps

  Tracked() = default;
  Tracked(double exact) : value(exact) {}  // NOLINT(google-explicit-constructor): numbers in formulas
  Tracked(double v, double e) : value(v), error(e) {}
};

// Any result may be flushed to zero when it is subnormal.
inline Tracked rounded(double value, double error) {
  return {value, error + std::fabs(value) + (value != 0 ? kTiny : 0.0)};
}
inline Tracked operator-(Tracked a) {
  return {-a.value, a.error};
}
inline Tracked operator+(Tracked a, Tracked b) {
  return rounded(a.value + b.value, a.error + b.error);
}
inline Tracked operator-(Tracked a, Tracked b) {
  return rounded(a.value - b.value, a.error + b.error);
}
inline Tracked operator*(Tracked a, Tracked b) {
  return rounded(a.value * b.value, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error);
}
inline Tracked operator/(Tracked a, Tracked b) {
  const double quotient = a.value / b.value;
  return rounded(quotient, (a.error + std::fabs(quotient) * b.error) / std::fabs(b.value));
}
inline Tracked exp(Tracked a) {
  const double power = std::exp(a.value);
  return rounded(power, power > 0 ? power * a.error + kTiny : kTiny);  // exp(-inf) is exact
}
inline Tracked log(Tracked a) {
  return rounded(std::log(a.value), a.error / std::fabs(a.value));
}
inline Tracked sqrt(Tracked a) {
  const double root = std::sqrt(a.value);
  return rounded(root, root > 0 ? a.error / (2 * root) : 0.0);
}
inline Tracked abs(Tracked a) {
  return {std::fabs(a.value), a.error};
}

// To [-limit, limit]; limit 0 is off. NaN stays NaN.
inline Tracked clamp(Tracked a, double limit) {
  if (limit == 0 || std::isnan(a.value)) return a;
  return {std::min(std::max(a.value, -limit), limit), a.error};
}
// What a clamp of x to [low, high] passes of the gradient: at a bound by the caller's rule, which counts twice where
// both bounds are one number.
template <class ClampGradient>
double passed(double x, double low, double high, ClampGradient rule) {
  if (x < low || x > high) return 0;
  double passes = 1;
  if (std::isinf(x)) return passes;  // a bound of infinity is none
  for (const double bound : {low, high}) {
    if (x == bound && rule == ClampGradient::zero) passes = 0;
    if (x == bound && rule == ClampGradient::half) passes /= 2;
  }
  return passes;
}

// A sum whose rounding is one eps of the magnitudes in it, as with sums in blocks.
class TrackedSum {
public:
  void add(Tracked term) {
    sum_.add(term.value);
    error_ += term.error + std::fabs(term.value);
  }
  Tracked total() const { return {sum_.value(), error_}; }

private:
  Sum sum_;
  double error_ = 0;
};

inline void put(Output& output, Tracked number) {
  const double cond = std::isnan(number.error) ? kInfinity : number.error;
  output.value.push_back(number.value);
  output.cond.push_back(std::isfinite(number.value) ? cond : 0.0);
}
// Numbers that an implementation may flush to zero.
inline void put_all(Output& output, const std::vector<Tracked>& numbers) {
  for (const Tracked& number : numbers) {
    output.value.push_back(number.value);
    output.cond.push_back(std::isfinite(number.value) ? kTiny + number.error : 0.0);
  }
}
inline void put(Output& output, bool wanted, Tracked number) {
  if (wanted) put(output, number);
}

}  // namespace rlk::golden
