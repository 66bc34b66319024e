// The largest number of each row and its place, in one pass.
#include <rlk/sdk/ops/argmax.hpp>
#include <rlk/sdk/ops/max.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/reduction/max.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// The first place of the largest number, a NaN being the largest. A block is looked through only where it has more than
// all before.
template <class TC>
HWY_INLINE int64_t place_of_largest(const Line& x, int64_t count) {
  const hn::ScalableTag<TC> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr TC kLowest = -std::numeric_limits<TC>::infinity();
  HWY_ALIGN TC block[kLineBlock];
  TC largest = kLowest;
  int64_t place = 0;
  for (int64_t begin = 0; begin < count; begin += kLineBlock) {
    const int64_t n = std::min(kLineBlock, count - begin), padded = (n + lanes - 1) / lanes * lanes;
    read_line(x.from(begin), n, static_cast<TC*>(block));
    std::fill(block + n, block + padded, kLowest);
    auto most = hn::Set(d, kLowest), strange = hn::Zero(d);
    for (int64_t i = 0; i < padded; i += lanes) {
      const auto v = hn::Load(d, block + i);
      most = hn::Max(most, v);
      strange = hn::IfThenElse(hn::IsNaN(v), hn::Set(d, TC{1}), strange);
    }
    TC of_lane[hn::MaxLanes(hn::ScalableTag<TC>())], has_nan[hn::MaxLanes(hn::ScalableTag<TC>())];
    hn::StoreU(most, d, of_lane);
    hn::StoreU(strange, d, has_nan);
    if (std::find(has_nan, has_nan + lanes, TC{1}) != has_nan + lanes) {
      return begin + (std::find_if(block, block + n, [](TC v) { return std::isnan(v); }) - block);
    }
    const TC best = *std::max_element(of_lane, of_lane + lanes);
    if (!(best > largest)) continue;
    largest = best;
    place = begin + (std::find(block, block + n, best) - block);
  }
  return place;
}

template <class Put>
HWY_INLINE void for_each_place(const Context& context, const Array& x, int64_t rows, int64_t columns, const Put& put) {
  with_compute_type(from(x), [&](auto tc) HWY_ATTR {
    for_each_row(context, rows, columns,
                 [&](int64_t n) HWY_ATTR { put(n, place_of_largest<decltype(tc)>(line_of(x, n), columns)); });
  });
}

void max(const CallOf<sdk::ops::Max>& call, const Context& context) {
  for_each_place(context, call.x, call.N, call.D,
                 [&](int64_t n, int64_t place) HWY_ATTR { call.y.put(n, call.x.get(n, place)); });
}

void argmax(const CallOf<sdk::ops::Argmax>& call, const Context& context) {
  for_each_place(context, call.x, call.N, call.D,
                 [&](int64_t n, int64_t place) HWY_ATTR { call.index.put(n, static_cast<double>(place)); });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

#if HWY_ONCE
template <class Call>
double two_per_number(const Call& call) {
  return 2 * static_cast<double>(call.N) * static_cast<double>(call.D);
}
#endif

RLK_CPU_VECTOR_KERNEL(Max, max, .operations = two_per_number);
RLK_CPU_VECTOR_KERNEL(Argmax, argmax, .operations = two_per_number);

}  // namespace rlk::cpu
