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

template <class TC>
HWY_INLINE void scaled_softmax_row(const Line& y, const Line& x, int64_t columns, TC scale) {
  const auto scaled = [scale](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, scale)); };
  if (std::fabs(scale) <= 1 || std::isfinite(largest_of_lines<TC>(from(x), columns, scaled))) {
    return softmax_row<TC>(y, x, columns, columns, scaled);
  }
  // The largest product is beyond TC, but its distance from itself is not: differences first.
  const TC sign = std::copysign(TC{1}, scale);
  const TC best = sign * largest_of_lines<TC>(from(x), columns,
                                              [sign](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, sign)); });
  softmax_row<TC>(y, x, columns, columns,
                  [=](auto d, auto v) HWY_ATTR { return hn::Mul(hn::Sub(v, hn::Set(d, best)), hn::Set(d, scale)); });
}

void scaled_softmax(const CallOf<sdk::ops::ScaledSoftmax>& call, const Context& context) {
  with_scale_type(call.x, call.params.scale, [&](auto tc) HWY_ATTR {
    const auto scale = static_cast<decltype(tc)>(call.params.scale);
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      scaled_softmax_row(line_of(call.y, n), line_of(call.x, n), call.D, scale);
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
