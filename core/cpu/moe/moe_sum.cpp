// The sum of what a token's experts give: line after line added to a compensated sum in fp64.
#include <rlk/sdk/ops/moe_sum.hpp>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/moe/moe_sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void moe_sum(const CallOf<sdk::ops::MoeSum>& call, const Context& context) {
  constexpr int64_t kColumns = 256;
  for_each_row(context, call.N, (call.K + 1) * call.H, [&](int64_t n) HWY_ATTR {
    for (int64_t begin = 0; begin < call.H; begin += kColumns) {
      const int64_t count = std::min(kColumns, call.H - begin);
      double sums[kColumns] = {}, rests[kColumns] = {};
      const Line sum = line_of(Array::of(sums)), rest = line_of(Array::of(rests));
      for (int64_t k = 0; k < call.K; ++k) {
        const int64_t at = n * call.x.strides[0] + k * call.x.strides[1] + begin * call.x.strides[2];
        const Line x = {element(call.x.data, at, call.x.dtype), call.x.dtype, call.x.strides[2]};
        map_lines<double>(to(sum, rest), from(sum, rest, x), count,
                          [](auto, auto total, auto lost, auto v, auto& next, auto& next_lost) HWY_ATTR {
                            next = hn::Add(total, v);
                            const auto added = hn::Sub(next, total);
                            const auto error = hn::Add(hn::Sub(total, hn::Sub(next, added)), hn::Sub(v, added));
                            next_lost = hn::Add(lost, error);
                          });
      }
      map_lines<double>(to(line_of(call.y, n).from(begin)), from(sum, rest), count,
                        [](auto, auto total, auto lost)
                            HWY_ATTR { return hn::IfThenElse(hn::IsFinite(total), hn::Add(total, lost), total); });
    }
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(MoeSum, moe_sum, .operations = per_element<40>);

}  // namespace rlk::cpu
