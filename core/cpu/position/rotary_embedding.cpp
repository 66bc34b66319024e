// Rotary embedding by a cache of cosines and sines.
#include <rlk/sdk/ops/rotary_embedding.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/position/rotary_embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/position/rotary-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void turn_token(const CallOf<sdk::ops::RotaryEmbedding>& call, int64_t n, int64_t position) {
  using namespace sdk::ops::rotary_embedding;  // NOLINT(google-build-using-namespace): its enumerations
  const Line cos = line_of(call.cos_sin_cache, position), sin = cos.from(call.F);
  const Turn turn = {call.params.offset,
                     call.F,
                     call.params.style == Style::neox,
                     call.params.inverse == Inverse::on,
                     cos,
                     sin,
                     cos,
                     sin};
  with_compute_type(from(call.query), [&](auto tc) HWY_ATTR {
    turn_heads<decltype(tc)>(call.query, call.query_out, n, turn);
    if (call.key.present()) turn_heads<decltype(tc)>(call.key, call.key_out, n, turn);
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(turn_token);

namespace {

using Call = CallOf<sdk::ops::RotaryEmbedding>;

void fill_nan(const Array& out, int64_t n) {
  for (int64_t h = 0; out.present() && h < out.shape[1]; ++h) {
    for (int64_t d = 0; d < out.shape[2]; ++d) {
      const int64_t at = n * out.strides[0] + h * out.strides[1] + d * out.strides[2];
      store_element(out.data, out.dtype, at, std::numeric_limits<double>::quiet_NaN());
    }
  }
}

DataError rotary_embedding(const Call& call, const Context& context) {
  FirstBadRow bad;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, call.Hq * call.D));
  parallel_for(context.parallel, call.N, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t position = call.positions.integer(n);
      if (position >= 0 && position < call.P) {
        HWY_DYNAMIC_DISPATCH(turn_token)(call, n, position);
        continue;
      }
      bad.report(n);
      fill_nan(call.query_out, n);
      fill_nan(call.key_out, n);
    }
  });
  if (bad.any()) return {kIdOutOfRange, bad.row(), call.positions.integer(bad.row())};
  return {};
}

}  // namespace

RLK_CPU_KERNEL(RotaryEmbedding, .run = rotary_embedding, .operations = per_element<10>);

}  // namespace rlk::cpu
#endif  // HWY_ONCE
