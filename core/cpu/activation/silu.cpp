// silu and its gradient, from one exponential each.
#include <rlk/sdk/ops/silu.hpp>
#include <rlk/sdk/ops/silu_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/activation/silu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/activation/gates-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void silu(const CallOf<sdk::ops::Silu>& call, const Context& context) {
  map(context, to(call.y), from(call.x), [](auto d, auto x) HWY_ATTR { return silu_of(d, x, logistic(d, x)); });
}

void silu_backward(const CallOf<sdk::ops::SiluBackward>& call, const Context& context) {
  map(context, to(call.grad_x), from(call.grad_y, call.x),
      [](auto d, auto grad, auto x) HWY_ATTR { return silu_gradient(d, grad, x); });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Silu, silu, .operations = per_element<30>);
RLK_CPU_VECTOR_KERNEL(SiluBackward, silu_backward, .operations = per_element<35>);

}  // namespace rlk::cpu
