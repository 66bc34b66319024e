// Softmax of rows and its gradient.
#include <rlk/sdk/ops/softmax.hpp>
#include <rlk/sdk/ops/softmax_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/norm/softmax-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void softmax(const CallOf<sdk::ops::Softmax>& call, const Context& context) {
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      softmax_row<decltype(tc)>(line_of(call.y, n), line_of(call.x, n), call.D, call.D);
    });
  });
}

void softmax_backward(const CallOf<sdk::ops::SoftmaxBackward>& call, const Context& context) {
  with_compute_type(from(call.y), [&](auto tc) HWY_ATTR {
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      softmax_gradient_row<decltype(tc)>(line_of(call.grad_x, n), line_of(call.grad_y, n), line_of(call.y, n), call.D,
                                         call.D, 1);
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Softmax, softmax, .operations = per_element<60>);
RLK_CPU_VECTOR_KERNEL(SoftmaxBackward, softmax_backward, .operations = per_element<20>);

}  // namespace rlk::cpu
