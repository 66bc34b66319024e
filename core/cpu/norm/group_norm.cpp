// Groups of channels less their mean, divided by their standard deviation, and the gradients.
#include <rlk/sdk/ops/group_norm.hpp>
#include <rlk/sdk/ops/group_norm_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/group_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/norm/norm-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

HWY_INLINE Line channel_of(const Array& array, int64_t n, int64_t c) {
  return {element(array.data, n * array.strides[0] + c * array.strides[1], array.dtype), array.dtype, array.strides[2]};
}
// One number for all places of a channel.
HWY_INLINE Line number_of(const Array& array, int64_t c) {
  return {array.ndim == 0 ? array.data : element(array.data, c * array.strides[0], array.dtype), array.dtype, 0};
}

// Of the group of channels that begins with `first`.
template <class Call>
HWY_INLINE RowMoments moments_of_group(const Call& call, int64_t n, int64_t first) {
  const auto channel = [&](int64_t i) { return channel_of(call.x, n, first + i); };
  return moments_of_lines(channel, call.C / call.params.groups, call.S, call.params.eps);
}

void group_norm(const CallOf<sdk::ops::GroupNorm>& call, const Context& context) {
  const Array weight = or_one(call.weight), bias = or_zero(call.bias);
  const int64_t groups = call.params.groups, channels = call.C / groups;
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    for_each_row(context, call.N * groups, channels * call.S, [&](int64_t row) HWY_ATTR {
      const int64_t n = row / groups, first = row % groups * channels;
      const RowMoments m = moments_of_group(call, n, first);
      for (int64_t c = first; c < first + channels; ++c) {
        normalise_row<decltype(tc)>(m, channel_of(call.y, n, c), channel_of(call.x, n, c), number_of(weight, c),
                                    number_of(bias, c), call.S);
      }
    });
  });
}

// In fp64, as rms_norm's.
void group_norm_backward(const CallOf<sdk::ops::GroupNormBackward>& call, const Context& context) {
  auto* moments = static_cast<RowMoments*>(context.workspace);
  const Array weight = or_one(call.weight);
  const int64_t groups = call.params.groups, channels = call.C / groups;
  for_each_row(context, call.N * groups, channels * call.S, [&](int64_t row) HWY_ATTR {
    const int64_t n = row / groups, first = row % groups * channels;
    const RowMoments m = moments[row] = moments_of_group(call, n, first);
    const auto in = [&](int64_t c) {
      return from(channel_of(call.grad_y, n, c), channel_of(call.x, n, c), number_of(weight, c));
    };
    LongSum sum, along;
    for (int64_t c = first; c < first + channels; ++c) {
      const auto sums = gradient_sums<double>(m, in(c), call.S);
      sum.add(sums[0]);
      along.add(sums[1]);
    }
    const auto count = static_cast<double>(channels * call.S);
    for (int64_t c = first; c < first + channels; ++c) {
      gradient_of_row(m, sum.value() / count, along.value() / count, channel_of(call.grad_x, n, c), in(c), call.S);
    }
  });
  if (!call.grad_weight.present() && !call.grad_bias.present()) return;
  for_each_row(context, call.C, call.N * call.S, [&](int64_t c) HWY_ATTR {
    LongSum of_weight, of_bias;
    for (int64_t n = 0; n < call.N; ++n) {
      const auto in = from(channel_of(call.grad_y, n, c), channel_of(call.x, n, c), number_of(or_one(Array()), c));
      const auto sums = gradient_sums<double>(moments[n * groups + c / channels], in, call.S);
      of_bias.add(sums[0]);
      of_weight.add(sums[1]);
    }
    if (call.grad_weight.present()) call.grad_weight.put(c, of_weight.value());
    if (call.grad_bias.present()) call.grad_bias.put(c, of_bias.value());
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(GroupNorm, group_norm, .operations = per_element<25>);
RLK_CPU_VECTOR_KERNEL(
    GroupNormBackward, group_norm_backward, .operations = per_element<80>,
    .workspace_bytes = [](const CallOf<sdk::ops::GroupNormBackward>& call) {
      return call.N * call.params.groups * static_cast<int64_t>(sizeof(RowMoments));
    });

}  // namespace rlk::cpu
