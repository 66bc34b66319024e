// The sum of what a token's experts give.
#include <rlk/sdk/ops/moe_sum.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/moe/moe_sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/row_sums-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void moe_sum(const CallOf<sdk::ops::MoeSum>& call, const Context& context) {
  for_each_row(context, call.N, (call.K + 1) * call.H, [&](int64_t n) HWY_ATTR {
    sum_of_rows(line_of(call.y, n), call.H, call.K, [&](int64_t k) {
      const int64_t at = n * call.x.strides[0] + k * call.x.strides[1];
      return Line{element(call.x.data, at, call.x.dtype), call.x.dtype, call.x.strides[2]};
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(MoeSum, moe_sum, .operations = per_element<40>);

}  // namespace rlk::cpu
