// The logistic function and its gradient.
#include <rlk/sdk/ops/sigmoid.hpp>
#include <rlk/sdk/ops/sigmoid_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/activation/sigmoid.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/activation/gates-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void sigmoid_forward(const CallOf<sdk::ops::Sigmoid>& call, const Context& context) {
  map(context, to(call.y), from(call.x), [](auto d, auto x) HWY_ATTR { return sigmoid(d, x); });
}

void sigmoid_backward(const CallOf<sdk::ops::SigmoidBackward>& call, const Context& context) {
  map(context, to(call.grad_x), from(call.grad_y, call.y),
      [](auto d, auto grad, auto y) HWY_ATTR { return sigmoid_gradient(d, grad, y); });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Sigmoid, sigmoid_forward, .operations = per_element<30>);
RLK_CPU_VECTOR_KERNEL(SigmoidBackward, sigmoid_backward, .operations = per_element<10>);

}  // namespace rlk::cpu
