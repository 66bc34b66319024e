// Sums, products, differences and quotients with broadcasting, and their gradients.
#include <rlk/sdk/ops/add.hpp>
#include <rlk/sdk/ops/div.hpp>
#include <rlk/sdk/ops/div_backward.hpp>
#include <rlk/sdk/ops/mul.hpp>
#include <rlk/sdk/ops/mul_backward.hpp>
#include <rlk/sdk/ops/sub.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/elementwise/arithmetic.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/formulas-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

// After the words that they are written in.
#include <rlk/formula/arithmetic.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void mul(const CallOf<sdk::ops::Mul>& call, const Context& context) {
  map(context, to(call.out), from(call.a, call.b), [](auto, auto a, auto b) HWY_ATTR { return hn::Mul(a, b); });
}

void mul_backward(const CallOf<sdk::ops::MulBackward>& call, const Context& context) {
  map(context, to(call.grad_a, call.grad_b), from(call.grad_out, call.a, call.b),
      [](auto, auto grad, auto a, auto b, auto& grad_a, auto& grad_b)
          HWY_ATTR { put(product_gradients(grad, a, b), grad_a, grad_b); });
}

// `add` and `sub`.
template <class Call>
HWY_INLINE void add_times(const Call& call, double factor, const Context& context) {
  const auto formula = [factor](auto d, auto a, auto b) HWY_ATTR { return add_times(d, a, b, factor); };
  if (!fits_f32(factor)) return map<double>(context, to(call.out), from(call.a, call.b), formula);
  map(context, to(call.out), from(call.a, call.b), formula);
}

void add(const CallOf<sdk::ops::Add>& call, const Context& context) {
  add_times(call, call.params.alpha, context);
}

void sub(const CallOf<sdk::ops::Sub>& call, const Context& context) {
  add_times(call, -call.params.alpha, context);
}

void div(const CallOf<sdk::ops::Div>& call, const Context& context) {
  map(context, to(call.out), from(call.a, call.b), [](auto, auto a, auto b) HWY_ATTR { return hn::Div(a, b); });
}

void div_backward(const CallOf<sdk::ops::DivBackward>& call, const Context& context) {
  map(context, to(call.grad_a, call.grad_b), from(call.grad_out, call.a, call.b),
      [](auto, auto grad, auto a, auto b, auto& grad_a, auto& grad_b)
          HWY_ATTR { put(quotient_gradients(grad, a, b), grad_a, grad_b); });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Add, add, .operations = per_element<1>);
RLK_CPU_VECTOR_KERNEL(Mul, mul, .operations = per_element<1>);
RLK_CPU_VECTOR_KERNEL(MulBackward, mul_backward, .operations = per_element<2>);
RLK_CPU_VECTOR_KERNEL(Sub, sub, .operations = per_element<1>);
RLK_CPU_VECTOR_KERNEL(Div, div, .operations = per_element<4>);
RLK_CPU_VECTOR_KERNEL(DivBackward, div_backward, .operations = per_element<8>);

}  // namespace rlk::cpu
