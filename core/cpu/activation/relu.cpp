// The positive part and its gradient. NaN stays NaN.
#include <rlk/sdk/ops/relu.hpp>
#include <rlk/sdk/ops/relu_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/activation/relu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/activation/gates-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void relu(const CallOf<sdk::ops::Relu>& call, const Context& context) {
  map(context, to(call.y), from(call.x), [](auto d, auto x) HWY_ATTR { return relu_of(d, x); });
}

void relu_backward(const CallOf<sdk::ops::ReluBackward>& call, const Context& context) {
  map(context, to(call.grad_x), from(call.grad_y, call.y),
      [](auto d, auto grad, auto y) HWY_ATTR { return relu_gradient(d, grad, y); });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Relu, relu, .operations = per_element<5>);
RLK_CPU_VECTOR_KERNEL(ReluBackward, relu_backward, .operations = per_element<5>);

}  // namespace rlk::cpu
