// Gated activations of feed-forward layers, silu_and_mul, swiglu and geglu, and their gradients.
#include <rlk/sdk/ops/geglu.hpp>
#include <rlk/sdk/ops/geglu_backward.hpp>
#include <rlk/sdk/ops/silu_and_mul.hpp>
#include <rlk/sdk/ops/silu_and_mul_backward.hpp>
#include <rlk/sdk/ops/swiglu.hpp>
#include <rlk/sdk/ops/swiglu_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/activation/gated.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/activation/gates-inl.hpp"

#ifndef RLK_CPU_GATED_ONCE
#define RLK_CPU_GATED_ONCE
namespace rlk::cpu {

// Half 0 or 1 of the columns.
inline Array half_of(const Array& rows, int64_t half) {
  Array array = rows;
  array.shape[1] /= 2;
  array.data = element(rows.data, half * array.shape[1] * rows.strides[1], rows.dtype);
  return array;
}

}  // namespace rlk::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void silu_gate(const Context& context, const Array& y, const Array& gate, const Array& input) {
  map(context, to(y), from(gate, input), [](auto d, auto x, auto v) HWY_ATTR { return silu_gate(d, x, v); });
}

void silu_gate_backward(const Context& context, const Array& grad_gate, const Array& grad_input, const Array& grad,
                        const Array& gate, const Array& input) {
  map(context, to(grad_gate, grad_input), from(grad, gate, input),
      [](auto d, auto g, auto x, auto v, auto& of_gate, auto& of_input)
          HWY_ATTR { put(silu_gate_gradients(d, g, x, v), of_gate, of_input); });
}

void silu_and_mul(const CallOf<sdk::ops::SiluAndMul>& call, const Context& context) {
  silu_gate(context, call.y, half_of(call.x, 0), half_of(call.x, 1));
}
void silu_and_mul_backward(const CallOf<sdk::ops::SiluAndMulBackward>& call, const Context& context) {
  silu_gate_backward(context, half_of(call.grad_x, 0), half_of(call.grad_x, 1), call.grad_y, half_of(call.x, 0),
                     half_of(call.x, 1));
}
void swiglu(const CallOf<sdk::ops::Swiglu>& call, const Context& context) {
  silu_gate(context, call.y, call.gate, call.input);
}
void swiglu_backward(const CallOf<sdk::ops::SwigluBackward>& call, const Context& context) {
  silu_gate_backward(context, call.grad_gate, call.grad_input, call.grad_y, call.gate, call.input);
}

void geglu(const CallOf<sdk::ops::Geglu>& call, const Context& context) {
  with_distribution(call, [&](auto distribution) HWY_ATTR {
    map(context, to(call.y), from(call.gate, call.input),
        [distribution](auto d, auto x, auto v) HWY_ATTR { return gelu_gate(x, v, distribution(d, x)); });
  });
}

void geglu_backward(const CallOf<sdk::ops::GegluBackward>& call, const Context& context) {
  with_distribution(call, [&](auto distribution) HWY_ATTR {
    map(context, to(call.grad_gate, call.grad_input), from(call.grad_y, call.gate, call.input),
        [distribution](auto d, auto g, auto x, auto v, auto& of_gate, auto& of_input)
            HWY_ATTR { put(gelu_gate_gradients(g, x, v, distribution(d, x)), of_gate, of_input); });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(SiluAndMul, silu_and_mul, .operations = per_element<32>);
RLK_CPU_VECTOR_KERNEL(SiluAndMulBackward, silu_and_mul_backward, .operations = per_element<40>);
RLK_CPU_VECTOR_KERNEL(Swiglu, swiglu, .operations = per_element<32>);
RLK_CPU_VECTOR_KERNEL(SwigluBackward, swiglu_backward, .operations = per_element<40>);
RLK_CPU_VECTOR_KERNEL(Geglu, geglu, .operations = per_element<62>);
RLK_CPU_VECTOR_KERNEL(GegluBackward, geglu_backward, .operations = per_element<65>);

}  // namespace rlk::cpu
