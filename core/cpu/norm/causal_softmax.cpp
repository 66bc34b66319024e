// Softmax of rows over the keys that a query sees, and its gradient.
#include <rlk/sdk/ops/causal_softmax.hpp>
#include <rlk/sdk/ops/causal_softmax_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/causal_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/norm/softmax-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// Row s of matrix b.
HWY_INLINE Line row_of(const Array& array, int64_t b, int64_t s) {
  return {element(array.data, b * array.strides[0] + s * array.strides[1], array.dtype), array.dtype, array.strides[2]};
}

void causal_softmax(const CallOf<sdk::ops::CausalSoftmax>& call, const Context& context) {
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    for_each_row(context, call.B * call.S, call.K, [&](int64_t row) HWY_ATTR {
      const int64_t b = row / call.S, s = row % call.S;
      softmax_row<decltype(tc)>(row_of(call.y, b, s), row_of(call.x, b, s), s + call.K - call.S + 1, call.K);
    });
  });
}

void causal_softmax_backward(const CallOf<sdk::ops::CausalSoftmaxBackward>& call, const Context& context) {
  with_compute_type(from(call.y), [&](auto tc) HWY_ATTR {
    for_each_row(context, call.B * call.S, call.K, [&](int64_t row) HWY_ATTR {
      const int64_t b = row / call.S, s = row % call.S;
      softmax_gradient_row<decltype(tc)>(row_of(call.grad_x, b, s), row_of(call.grad_y, b, s), row_of(call.y, b, s),
                                         s + call.K - call.S + 1, call.K, 1);
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(CausalSoftmax, causal_softmax, .operations = per_element<60>);
RLK_CPU_VECTOR_KERNEL(CausalSoftmaxBackward, causal_softmax_backward, .operations = per_element<20>);

}  // namespace rlk::cpu
