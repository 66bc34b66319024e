// Rows divided by the root of their mean square, and the gradients.
#include <rlk/sdk/ops/rms_norm.hpp>
#include <rlk/sdk/ops/rms_norm_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/rms_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/norm/norm-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void rms_norm(const CallOf<sdk::ops::RmsNorm>& call, const Context& context) {
  const Array weight = or_one(call.weight);
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_row(context, call.N, call.H, [&](int64_t n) HWY_ATTR {
      const Line x = line_of(call.x, n);
      const RowRoot root = root_of_row<TC>(x, call.H, call.params.eps);
      const auto scale = static_cast<TC>(root.scale), rstd = static_cast<TC>(root.of_scaled);
      map_lines<TC>(to(line_of(call.y, n)), from(x, line_of(weight)), call.H,
                    [=](auto d, auto v, auto w) HWY_ATTR { return rms_of(d, v, scale, rstd, w); });
      if (call.rstd.present()) call.rstd.put(n, root.root());
    });
  });
}

void rms_norm_backward(const CallOf<sdk::ops::RmsNormBackward>& call, const Context& context) {
  rms_gradients(call, context, call.x, or_zero(Array()));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(RmsNorm, rms_norm, .operations = per_element<15>);
RLK_CPU_VECTOR_KERNEL(
    RmsNormBackward, rms_norm_backward, .operations = per_element<60>,
    .workspace_bytes = [](const CallOf<sdk::ops::RmsNormBackward>& call) {
      return call.N * static_cast<int64_t>(sizeof(double));
    });

}  // namespace rlk::cpu
