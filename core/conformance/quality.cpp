// The bounds, as golden.hpp states them.
#include "core/conformance/quality.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace rlk::core::conformance {
namespace {

struct Format {
  int mantissa_bits, min_exponent;
  double largest;
};
Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return {7, -126, 0x1.fep127};
    case Dtype::f16:
      return {10, -14, 65504.0};
    case Dtype::f64:
      return {52, -1022, std::numeric_limits<double>::max()};
    case Dtype::f8_e4m3fn:
      return {3, -6, 448.0};
    case Dtype::f8_e5m2:
      return {2, -14, 57344.0};
    case Dtype::f4_e2m1fn:
      return {1, 0, 6.0};
    default:
      return {23, -126, std::numeric_limits<float>::max()};
  }
}

}  // namespace

double largest_of(Dtype dtype) {
  return format_of(dtype).largest;
}

double ulp_of(double value, Dtype dtype) {
  const Format format = format_of(dtype);
  if (!std::isfinite(value)) return std::fabs(value);
  // By bits, because it is asked for each element: zero and subnormal numbers have a field below every min_exponent.
  const int field = static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7ff);
  const int exponent = std::max(field - 1023, format.min_exponent) - format.mantissa_bits;
  if (exponent < -1022) return std::ldexp(1.0, exponent);
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

double root_mean_square(std::span<const double> values) {
  double squares = 0, count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++count;
  }
  return count > 0 ? std::sqrt(squares / count) : 0.0;
}

void Quality::merge(const Quality& other) {
  ratio = std::max(ratio, other.ratio);
  ulp = std::max(ulp, other.ulp);
  shrinkage = std::max(shrinkage, other.shrinkage);
  if (inaccurate.empty()) inaccurate = other.inaccurate;
}

Bound::Bound(const ConcreteCall& call, size_t output)
    : dtype_(call.outputs[output].dtype),
      epsilon_(call.arithmetic() == Dtype::f64 ? 0x1p-53 : 0x1p-24),
      factor_(call.decl->error_factor) {
  const bool from_16_bit = call.arithmetic() == Dtype::bf16 || call.arithmetic() == Dtype::f16;
  if (dtype_ == Dtype::f32 && from_16_bit) absolute_ = call.decl->outputs[output].absolute_error;
}

Bound::Limits Bound::operator()(double value, double condition, double rounded) const {
  if (!is_floating(dtype_)) return {};                          // an integer is right or wrong
  if (value == 0 && condition == 0 && rounded == 0) return {};  // zero by definition, not by arithmetic
  const double ulp = ulp_of(value, dtype_);
  const double allowed = ulp + factor_ * epsilon_ * condition;
  const double tight = ulp + epsilon_ * condition;
  Limits limits;
  // An absolute limit holds where one rounding of every intermediate leaves room for it.
  limits.accurate = absolute_ > 0 ? std::min(allowed, std::max(absolute_, tight)) : allowed;
  limits.intermediate = epsilon_ * condition;
  return limits;
}

}  // namespace rlk::core::conformance
