// Gated activations, and their gradients: the declarations' formulas, fp64.
#include <rlk/sdk/ops/geglu.hpp>
#include <rlk/sdk/ops/geglu_backward.hpp>
#include <rlk/sdk/ops/silu_and_mul.hpp>
#include <rlk/sdk/ops/silu_and_mul_backward.hpp>
#include <rlk/sdk/ops/swiglu.hpp>
#include <rlk/sdk/ops/swiglu_backward.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/gates.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {

DataError silu_and_mul(CallOf<sdk::ops::SiluAndMul>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t h = 0; h < call.H; ++h)
      put(call.y, silu_of(call.x.load(n, h)).value * Tracked(call.x.load(n, call.H + h)));
  }
  return {};
}

DataError silu_and_mul_backward(CallOf<sdk::ops::SiluAndMulBackward>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t i = 0; i < 2 * call.H; ++i) {
      const int64_t h = i % call.H;
      const Gate gate = silu_of(call.x.load(n, h));
      const Tracked factor = call.x.load(n, call.H + h), g = call.grad_y.load(n, h);
      put(call.grad_x, i < call.H ? g * factor * gate.slope : g * gate.value);
    }
  }
  return {};
}

DataError swiglu(CallOf<sdk::ops::Swiglu>& call) {
  const auto formula = [&](Tracked input, Tracked gate) { put(call.y, input * silu_of(gate).value); };
  for_each_element(formula, call.input, call.gate);
  return {};
}

DataError swiglu_backward(CallOf<sdk::ops::SwigluBackward>& call) {
  const auto formula = [&](Tracked g, Tracked input, Tracked gate) {
    put(call.grad_input, g * silu_of(gate).value);
    put(call.grad_gate, g * input * silu_of(gate).slope);
  };
  for_each_element(formula, call.grad_y, call.input, call.gate);
  return {};
}

DataError geglu(CallOf<sdk::ops::Geglu>& call) {
  const bool approximate = call.params.approximate == sdk::ops::geglu::Approximate::tanh;
  const auto formula = [&](Tracked input, Tracked gate) { put(call.y, input * gelu_of(gate, approximate).value); };
  for_each_element(formula, call.input, call.gate);
  return {};
}

DataError geglu_backward(CallOf<sdk::ops::GegluBackward>& call) {
  const bool approximate = call.params.approximate == sdk::ops::geglu::Approximate::tanh;
  const auto formula = [&](Tracked g, Tracked input, Tracked gate) {
    put(call.grad_input, g * gelu_of(gate, approximate).value);
    put(call.grad_gate, g * input * gelu_of(gate, approximate).slope);
  };
  for_each_element(formula, call.grad_y, call.input, call.gate);
  return {};
}

}  // namespace rlk::golden
