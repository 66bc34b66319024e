// gelu and its gradient, with erf or with tanh.
#include <rlk/sdk/ops/gelu.hpp>
#include <rlk/sdk/ops/gelu_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/activation/gelu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/activation/gates-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void gelu(const CallOf<sdk::ops::Gelu>& call, const Context& context) {
  with_distribution(call, [&](auto distribution) HWY_ATTR {
    map(context, to(call.y), from(call.x),
        [distribution](auto d, auto x) HWY_ATTR { return gelu_of(x, distribution(d, x)); });
  });
}

void gelu_backward(const CallOf<sdk::ops::GeluBackward>& call, const Context& context) {
  with_distribution(call, [&](auto distribution) HWY_ATTR {
    map(context, to(call.grad_x), from(call.grad_y, call.x),
        [distribution](auto d, auto grad, auto x) HWY_ATTR { return gelu_gradient(grad, x, distribution(d, x)); });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Gelu, gelu, .operations = per_element<60>);
RLK_CPU_VECTOR_KERNEL(GeluBackward, gelu_backward, .operations = per_element<60>);

}  // namespace rlk::cpu
