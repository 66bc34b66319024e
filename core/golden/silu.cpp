// The sigmoid linear unit, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/silu.hpp>
#include <rlk/sdk/ops/silu_backward.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

DataError silu(CallOf<sdk::ops::Silu>& call) {
  const auto formula = [&](Tracked x) { put(call.y, x / (Tracked(1.0) + exp(-x))); };
  for_each_element(formula, call.x);
  return {};
}

DataError silu_backward(CallOf<sdk::ops::SiluBackward>& call) {
  const auto formula = [&](Tracked g, Tracked x) {
    const Tracked s = Tracked(1.0) / (Tracked(1.0) + exp(-x));
    put(call.grad_x, g * s * (Tracked(1.0) + x * (Tracked(1.0) - s)));
  };
  for_each_element(formula, call.grad_y, call.x);
  return {};
}

}  // namespace rlk::golden
