// Two partial answers of attention as one: a weight of each part for every query and head, and a pass over both.
#include <rlk/sdk/ops/merge_attention_states.hpp>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/attention/merge_attention_states.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// The numbers of one query and head.
HWY_INLINE Line head_of(const Array& array, int64_t n, int64_t h) {
  return {element(array.data, n * array.strides[0] + h * array.strides[1], array.dtype), array.dtype, array.strides[2]};
}

void merge_attention_states(const CallOf<sdk::ops::MergeAttentionStates>& call, const Context& context) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto lse_of = [](const Array& lse, int64_t n, int64_t h) {
    const double number = lse.get(n, h);
    return std::isinf(number) ? -kInfinity : number;  // an empty part
  };
  with_compute_type(from(call.out_a), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_row(context, call.N * call.H, call.D, [&](int64_t row) HWY_ATTR {
      const int64_t n = row / call.H, h = row % call.H;
      const double lse_a = lse_of(call.lse_a, n, h), lse_b = lse_of(call.lse_b, n, h);
      const double largest = std::isnan(lse_a) || lse_a > lse_b ? lse_a : lse_b;
      // Two empty parts are equal, too: their weights multiply zeros.
      const auto share_of = [largest](double lse) { return lse == largest ? 1 : std::exp(lse - largest); };
      const double a = share_of(lse_a), b = share_of(lse_b), sum = a + b;
      const auto weight_a = static_cast<TC>(a / sum), weight_b = static_cast<TC>(b / sum);
      // Nothing is read of an empty part.
      const Line part_a = lse_a == -kInfinity ? or_zero(Line()) : head_of(call.out_a, n, h);
      const Line part_b = lse_b == -kInfinity ? or_zero(Line()) : head_of(call.out_b, n, h);
      map_lines<TC>(to(head_of(call.out, n, h)), from(part_a, part_b), call.D, [=](auto d, auto x, auto y) HWY_ATTR {
        return hn::MulAdd(x, hn::Set(d, weight_a), hn::Mul(y, hn::Set(d, weight_b)));
      });
      if (call.lse.present()) call.lse.put(n, h, largest + std::log(sum));
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {
RLK_CPU_VECTOR_KERNEL(MergeAttentionStates, merge_attention_states, .operations = per_element<10>);
}  // namespace rlk::cpu
