// The Gaussian error linear unit, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/gelu.hpp>
#include <rlk/sdk/ops/gelu_backward.hpp>

#include <cmath>

#include "core/golden/elementwise.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
using sdk::ops::gelu::Approximate;

namespace {

const Tracked kHalf = 0.5, kOne = 1.0;

Tracked erf(Tracked a) {
  const double slope = 2 / std::sqrt(M_PI) * std::exp(-a.value * a.value);
  return rounded(std::erf(a.value), slope * a.error);
}
Tracked tanh(Tracked a) {
  const double value = std::tanh(a.value);
  return rounded(value, (1 - value * value) * a.error);
}
Tracked constant(double value) {
  return {value, std::fabs(value)};
}

// sqrt(2 / pi) (x + 0.044715 x^3)
Tracked inner(Tracked x) {
  return constant(std::sqrt(2 / M_PI)) * (x + constant(0.044715) * x * x * x);
}

}  // namespace

DataError gelu(CallOf<sdk::ops::Gelu>& call) {
  const auto formula = [&](Tracked x) {
    const bool approximate = call.params.approximate == Approximate::tanh;
    const Tracked of_x = approximate ? tanh(inner(x)) : erf(x / constant(std::sqrt(2.0)));
    put(call.y, kHalf * x * (kOne + of_x));
  };
  for_each_element(formula, call.x);
  return {};
}

DataError gelu_backward(CallOf<sdk::ops::GeluBackward>& call) {
  const auto formula = [&](Tracked g, Tracked x) {
    if (call.params.approximate == Approximate::none) {
      const Tracked density = constant(1 / std::sqrt(2 * M_PI)) * exp(-kHalf * x * x);
      put(call.grad_x, g * (kHalf * (kOne + erf(x / constant(std::sqrt(2.0)))) + x * density));
      return;
    }
    const Tracked t = tanh(inner(x));
    const Tracked slope = constant(std::sqrt(2 / M_PI)) * (kOne + constant(3 * 0.044715) * x * x);
    put(call.grad_x, g * (kHalf * (kOne + t) + kHalf * x * (kOne - t * t) * slope));
  };
  for_each_element(formula, call.grad_y, call.x);
  return {};
}

}  // namespace rlk::golden
