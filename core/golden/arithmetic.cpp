// Products, differences and quotients with broadcasting, and their gradients: the declarations' formulas, fp64.
#include <rlk/sdk/ops/div.hpp>
#include <rlk/sdk/ops/div_backward.hpp>
#include <rlk/sdk/ops/mul.hpp>
#include <rlk/sdk/ops/mul_backward.hpp>
#include <rlk/sdk/ops/sub.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

DataError mul(CallOf<sdk::ops::Mul>& call) {
  const auto formula = [&](Tracked a, Tracked b) { put(call.out, a * b); };
  for_each_element(formula, call.a, call.b);
  return {};
}

DataError mul_backward(CallOf<sdk::ops::MulBackward>& call) {
  const auto formula = [&](Tracked g, Tracked a, Tracked b) {
    put(call.grad_a, g * b);
    put(call.grad_b, g * a);
  };
  for_each_element(formula, call.grad_out, call.a, call.b);
  return {};
}

DataError sub(CallOf<sdk::ops::Sub>& call) {
  const auto formula = [&](double a, double b) {
    const double scaled_b = call.params.alpha * b;
    const double out = a - scaled_b;
    call.out.value.push_back(out);
    // alpha and the product are rounded before the difference. No kTiny: a difference of subnormal numbers is exact.
    call.out.cond.push_back(std::isfinite(out) ? std::fabs(a) + std::fabs(scaled_b) : 0.0);
  };
  for_each_element(formula, call.a, call.b);
  return {};
}

DataError div(CallOf<sdk::ops::Div>& call) {
  const auto formula = [&](Tracked a, Tracked b) { put(call.out, a / b); };
  for_each_element(formula, call.a, call.b);
  return {};
}

DataError div_backward(CallOf<sdk::ops::DivBackward>& call) {
  const auto formula = [&](Tracked g, Tracked a, Tracked b) {
    put(call.grad_a, g / b);
    put(call.grad_b, -(g / b * (a / b)));
  };
  for_each_element(formula, call.grad_out, call.a, call.b);
  return {};
}

}  // namespace rlk::golden
