// The positive part, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/relu.hpp>
#include <rlk/sdk/ops/relu_backward.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

DataError relu(CallOf<sdk::ops::Relu>& call) {
  const auto formula = [&](Tracked x) { put(call.y, x.value < 0 ? Tracked(0.0) : x); };
  for_each_element(formula, call.x);
  return {};
}

DataError relu_backward(CallOf<sdk::ops::ReluBackward>& call) {
  const auto formula = [&](Tracked g, Tracked y) {
    put(call.grad_x, std::isnan(y.value) ? y : y.value > 0 ? g : Tracked(0.0));
  };
  for_each_element(formula, call.grad_y, call.y);
  return {};
}

}  // namespace rlk::golden
