// Softmax of rows times a number, and its gradient.
#include <rlk/sdk/ops/scaled_softmax.hpp>
#include <rlk/sdk/ops/scaled_softmax_backward.hpp>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/scaled_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/norm/softmax-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// Calls function(TC{}).
template <class Function>
HWY_INLINE void with_scale_type(const Array& array, double scale, const Function& function) {
  if (!fits_f32(scale)) return function(double{});
  with_compute_type(from(array), function);
}

void scaled_softmax(const CallOf<sdk::ops::ScaledSoftmax>& call, const Context& context) {
  with_scale_type(call.x, call.params.scale, [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    const auto scale = static_cast<TC>(call.params.scale);
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      softmax_row<TC>(line_of(call.y, n), line_of(call.x, n), call.D, call.D,
                      [scale](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, scale)); });
    });
  });
}

void scaled_softmax_backward(const CallOf<sdk::ops::ScaledSoftmaxBackward>& call, const Context& context) {
  with_scale_type(call.y, call.params.scale, [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    const auto scale = static_cast<TC>(call.params.scale);
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      softmax_gradient_row<TC>(line_of(call.grad_x, n), line_of(call.grad_y, n), line_of(call.y, n), call.D, call.D,
                               scale);
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(ScaledSoftmax, scaled_softmax, .operations = per_element<60>);
RLK_CPU_VECTOR_KERNEL(ScaledSoftmaxBackward, scaled_softmax_backward, .operations = per_element<20>);

}  // namespace rlk::cpu
