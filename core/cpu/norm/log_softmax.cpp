// Logarithm of the softmax of rows and its gradient.
#include <rlk/sdk/ops/log_softmax.hpp>
#include <rlk/sdk/ops/log_softmax_backward.hpp>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/log_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/formulas-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

// After the words that they are written in.
#include <rlk/formula/norm.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void log_softmax(const CallOf<sdk::ops::LogSoftmax>& call, const Context& context) {
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      const auto x = from(line_of(call.x, n));
      const TC largest = largest_of_lines<TC>(x, call.D, [](auto, auto v) HWY_ATTR { return v; });
      const double sum = sum_of_lines<TC>(
          x, call.D, [largest](auto d, auto v) HWY_ATTR { return exp(d, hn::Sub(v, hn::Set(d, largest))); });
      const auto log_sum = static_cast<TC>(std::log(sum));
      map_lines<TC>(to(line_of(call.y, n)), x, call.D,
                    [=](auto d, auto v) HWY_ATTR { return log_softmax_of(d, v, largest, log_sum); });
    });
  });
}

void log_softmax_backward(const CallOf<sdk::ops::LogSoftmaxBackward>& call, const Context& context) {
  with_compute_type(from(call.y), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
      const Line grad = line_of(call.grad_y, n);
      const double total = sum_of_lines<TC>(from(grad), call.D, [](auto, auto g) HWY_ATTR { return g; });
      const auto sum = static_cast<TC>(total);
      map_lines<TC>(to(line_of(call.grad_x, n)), from(grad, line_of(call.y, n)), call.D,
                    [=](auto d, auto g, auto y) HWY_ATTR { return log_softmax_gradient(d, g, y, sum); });
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(LogSoftmax, log_softmax, .operations = per_element<40>);
RLK_CPU_VECTOR_KERNEL(LogSoftmaxBackward, log_softmax_backward, .operations = per_element<30>);

}  // namespace rlk::cpu
