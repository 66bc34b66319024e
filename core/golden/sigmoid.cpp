// The logistic function, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/sigmoid.hpp>
#include <rlk/sdk/ops/sigmoid_backward.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

DataError sigmoid(CallOf<sdk::ops::Sigmoid>& call) {
  const auto formula = [&](Tracked x) { put(call.y, Tracked(1.0) / (Tracked(1.0) + exp(-x))); };
  for_each_element(formula, call.x);
  return {};
}

DataError sigmoid_backward(CallOf<sdk::ops::SigmoidBackward>& call) {
  const auto formula = [&](Tracked g, Tracked y) { put(call.grad_x, g * y * (Tracked(1.0) - y)); };
  for_each_element(formula, call.grad_y, call.y);
  return {};
}

}  // namespace rlk::golden
