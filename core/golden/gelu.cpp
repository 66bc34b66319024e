// The Gaussian error linear unit, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/gelu.hpp>
#include <rlk/sdk/ops/gelu_backward.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/gates.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {
using sdk::ops::gelu::Approximate;

DataError gelu(CallOf<sdk::ops::Gelu>& call) {
  const bool approximate = call.params.approximate == Approximate::tanh;
  for_each_element([&](Tracked x) { put(call.y, gelu_of(x, approximate).value); }, call.x);
  return {};
}

DataError gelu_backward(CallOf<sdk::ops::GeluBackward>& call) {
  const bool approximate = call.params.approximate == Approximate::tanh;
  const auto formula = [&](Tracked g, Tracked x) { put(call.grad_x, g * gelu_of(x, approximate).slope); };
  for_each_element(formula, call.grad_y, call.x);
  return {};
}

}  // namespace rlk::golden
