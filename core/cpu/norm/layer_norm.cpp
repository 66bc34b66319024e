// Rows less their mean, divided by their standard deviation, and the gradients.
#include <rlk/sdk/ops/layer_norm.hpp>
#include <rlk/sdk/ops/layer_norm_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/layer_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/norm/norm-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void layer_norm(const CallOf<sdk::ops::LayerNorm>& call, const Context& context) {
  const Array weight = or_one(call.weight), bias = or_zero(call.bias);
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    for_each_row(context, call.N, call.H, [&](int64_t n) HWY_ATTR {
      const Line x = line_of(call.x, n);
      const RowMoments m = moments_of_row(x, call.H, call.params.eps);
      normalise_row<decltype(tc)>(m, line_of(call.y, n), x, line_of(weight), line_of(bias), call.H);
      if (call.mean.present()) call.mean.put(n, m.mean);
      if (call.rstd.present()) call.rstd.put(n, m.rstd);
    });
  });
}

// In fp64, as rms_norm's.
void layer_norm_backward(const CallOf<sdk::ops::LayerNormBackward>& call, const Context& context) {
  auto* moments = static_cast<RowMoments*>(context.workspace);
  const Array weight = or_one(call.weight);
  const auto columns = static_cast<double>(call.H);
  for_each_row(context, call.N, call.H, [&](int64_t n) HWY_ATTR {
    const auto in = from(line_of(call.grad_y, n), line_of(call.x, n), line_of(weight));
    const RowMoments m = moments[n] = moments_of_row(in[1], call.H, call.params.eps);
    const auto sums = gradient_sums<double>(m, in, call.H);
    gradient_of_row(m, sums[0] / columns, sums[1] / columns, line_of(call.grad_x, n), in, call.H);
  });
  if (call.grad_weight.present()) {
    sum_of_rows(context, call.N, call.H, call.grad_y, call.x, call.grad_weight, [moments](int64_t n) HWY_ATTR {
      return [m = moments[n]](auto d, auto grad, auto x) HWY_ATTR { return hn::Mul(grad, normal(d, m, x)); };
    });
  }
  if (call.grad_bias.present()) {
    sum_of_rows(context, call.N, call.H, call.grad_y, call.grad_y, call.grad_bias,
                [](int64_t) HWY_ATTR { return [](auto, auto grad, auto) HWY_ATTR { return grad; }; });
  }
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(LayerNorm, layer_norm, .operations = per_element<25>);
RLK_CPU_VECTOR_KERNEL(
    LayerNormBackward, layer_norm_backward, .operations = per_element<80>,
    .workspace_bytes = [](const CallOf<sdk::ops::LayerNormBackward>& call) {
      return call.N * static_cast<int64_t>(sizeof(RowMoments));
    });

}  // namespace rlk::cpu
