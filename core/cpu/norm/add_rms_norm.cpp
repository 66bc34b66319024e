// Sums of two rows, divided by the root of their mean square, and the gradients.
#include <rlk/sdk/ops/add_rms_norm.hpp>
#include <rlk/sdk/ops/add_rms_norm_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/add_rms_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/norm/norm-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void add_rms_norm(const CallOf<sdk::ops::AddRmsNorm>& call, const Context& context) {
  const Array weight = or_one(call.weight);
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_row(context, call.N, call.H, [&](int64_t n) HWY_ATTR {
      const Line x = line_of(call.x, n), residual = line_of(call.residual, n);
      const RowRoot root = root_of_row<TC>(from(x, residual), call.H, call.params.eps,
                                           [](auto, auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
      const auto scale = static_cast<TC>(root.scale), rstd = static_cast<TC>(root.of_scaled);
      map_lines<TC>(to(line_of(call.y, n), line_of(call.sum, n)), from(x, residual, line_of(weight)), call.H,
                    [=](auto d, auto a, auto b, auto w, auto& y, auto& sum) HWY_ATTR {
                      sum = hn::Add(a, b);
                      y = rms_of(d, sum, scale, rstd, w);
                    });
    });
  });
}

void add_rms_norm_backward(const CallOf<sdk::ops::AddRmsNormBackward>& call, const Context& context) {
  rms_gradients(call, context, call.sum, or_zero(call.grad_sum));
  if (!call.grad_residual.present()) return;
  map(context, to(call.grad_residual), from(call.grad_x), [](auto, auto grad) HWY_ATTR { return grad; });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(AddRmsNorm, add_rms_norm, .operations = per_element<15>);
RLK_CPU_VECTOR_KERNEL(
    AddRmsNormBackward, add_rms_norm_backward, .operations = per_element<60>,
    .workspace_bytes = [](const CallOf<sdk::ops::AddRmsNormBackward>& call) {
      return call.N * static_cast<int64_t>(sizeof(double));
    });

}  // namespace rlk::cpu
