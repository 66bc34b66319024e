// Softmax of rows and its gradient: a pass for the maximum, one for the sum, one that writes.
#include <rlk/sdk/ops/softmax.hpp>
#include <rlk/sdk/ops/softmax_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void softmax(const CallOf<sdk::ops::Softmax>& call, const Context& context) {
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      const auto x = from(line_of(call.x, n));
      const TC largest = largest_of_lines<TC>(x, call.D, [](auto, auto v) HWY_ATTR { return v; });
      const auto power = [largest](auto d, auto v) HWY_ATTR { return exp(d, hn::Sub(v, hn::Set(d, largest))); };
      const auto sum = static_cast<TC>(sum_of_lines<TC>(x, call.D, power));
      map_lines<TC>(to(line_of(call.y, n)), x, call.D,
                    [=](auto d, auto v) HWY_ATTR { return hn::Div(power(d, v), hn::Set(d, sum)); });
    });
  });
}

void softmax_backward(const CallOf<sdk::ops::SoftmaxBackward>& call, const Context& context) {
  with_compute_type(from(call.y), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      const auto in = from(line_of(call.grad_y, n), line_of(call.y, n));
      const auto product = [](auto, auto grad, auto y) HWY_ATTR { return hn::Mul(grad, y); };
      const auto sum = static_cast<TC>(sum_of_lines<TC>(in, call.D, product));
      map_lines<TC>(to(line_of(call.grad_x, n)), in, call.D,
                    [=](auto d, auto grad, auto y) HWY_ATTR { return hn::Mul(y, hn::Sub(grad, hn::Set(d, sum))); });
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Softmax, softmax, .operations = per_element<60>);
RLK_CPU_VECTOR_KERNEL(SoftmaxBackward, softmax_backward, .operations = per_element<20>);

}  // namespace rlk::cpu
