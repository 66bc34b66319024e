// The sigmoid linear unit, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/silu.hpp>
#include <rlk/sdk/ops/silu_backward.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/gates.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {

DataError silu(CallOf<sdk::ops::Silu>& call) {
  for_each_element([&](Tracked x) { put(call.y, silu_of(x).value); }, call.x);
  return {};
}

DataError silu_backward(CallOf<sdk::ops::SiluBackward>& call) {
  const auto formula = [&](Tracked g, Tracked x) { put(call.grad_x, g * silu_of(x).slope); };
  for_each_element(formula, call.grad_y, call.x);
  return {};
}

}  // namespace rlk::golden
