// What formulas are applied to: lines of numbers of any dtype and stride, as vectors of fp32 or fp64 (TC below).
//
//   map_lines<TC>(to(out...), from(in...), count, f)  out = f(d, in...); with several outputs f(d, in..., out&...)
//   sum_of_lines<TC>(from(in...), count, f)           the sum of f(d, in...) over the line, as double
//   sums_of_lines<TC>(from(in...), count, f...)       several of them in one pass over memory
//   largest_of_lines<TC>(from(in...), count, f)       its largest; unspecified when a NaN is among them
//
// f is a generic lambda over vectors: [](auto d, auto x) HWY_ATTR { return hn::Mul(x, x); }. It sees the same numbers
// in the same lanes whatever the strides are, so that bits do not depend on layout. Contiguous numbers that are TC
// already are read and written where they are, and so is contiguous fp32 where TC is double (blocks-inl.hpp);
// everything else goes through a buffer in L1, a block at a time. An output may be the very memory of an input.
#if defined(RLK_CPU_LINES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_LINES_INL
#undef RLK_CPU_LINES_INL
#else
#define RLK_CPU_LINES_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "core/cpu/simd/blocks-inl.hpp"
#include "core/cpu/simd/long_sum.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class TC, size_t kOut, size_t kIn, class F>
HWY_INLINE void map_lines(const std::array<Line, kOut>& out, const std::array<Line, kIn>& in, int64_t count,
                          const F& f) {
  static_assert(kOut >= 1 && kOut <= 3, "write the case of more outputs below");
  const hn::ScalableTag<TC> d;
  using V = hn::VFromD<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Inputs<TC, kIn> inputs(in, count);
  Outputs<TC, kOut> outputs(out, in);
  for (int64_t begin = 0; begin < count; begin += kLineBlock) {
    const int64_t n = std::min(kLineBlock, count - begin);
    outputs.begin(begin, n);
    inputs.with_block(begin, n, [&](const auto& block) HWY_ATTR {
      for (int64_t i = 0; i < n;) {
        block.fetch(i, 4 * lanes);
        for (const int64_t end = std::min(n, i + 4 * lanes); i < end; i += lanes) {
          if constexpr (kOut == 1) {
            outputs.put(d, i, block.apply(d, f, i));
          } else if constexpr (kOut == 2) {
            V a = hn::Zero(d), b = a;
            block.apply(d, f, i, a, b);
            outputs.put(d, i, a, b);
          } else {
            V a = hn::Zero(d), b = a, c = a;
            block.apply(d, f, i, a, b, c);
            outputs.put(d, i, a, b, c);
          }
        }
      }
    });
    outputs.end(begin, n);
  }
}

// The sum of f over one block, in four chains of TC. The first of several formulas asks for the lines that follow.
template <class TC, class T, size_t kIn, class F>
HWY_INLINE double sum_of_block(const LineBlock<T, kIn>& block, int64_t count, const F& f, bool fetches) {
  const hn::ScalableTag<TC> d;
  using V = hn::VFromD<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    if (fetches) block.fetch(i, 4 * lanes);
    s0 = hn::Add(s0, block.apply(d, f, i));
    s1 = hn::Add(s1, block.apply(d, f, i + lanes));
    s2 = hn::Add(s2, block.apply(d, f, i + 2 * lanes));
    s3 = hn::Add(s3, block.apply(d, f, i + 3 * lanes));
  }
  for (; i < count; i += lanes) {
    const auto is_given = hn::FirstN(d, static_cast<size_t>(count - i));
    s0 = hn::Add(s0, hn::IfThenElseZero(is_given, block.apply(d, f, i)));
  }
  const V sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// The sums of all formulas in one pass over memory. Blocks are added in fp64, in their order.
template <class TC, size_t kIn, class... F>
HWY_INLINE std::array<double, sizeof...(F)> sums_of_lines(const std::array<Line, kIn>& in, int64_t count,
                                                          const F&... f) {
  Inputs<TC, kIn> inputs(in, count);
  std::array<LongSum, sizeof...(F)> totals;
  for (int64_t begin = 0; begin < count; begin += kLineBlock) {
    const int64_t n = std::min(kLineBlock, count - begin);
    inputs.with_block(begin, n, [&](const auto& block) HWY_ATTR {
      size_t k = 0;
      ((totals[k].add(sum_of_block<TC>(block, n, f, /*fetches=*/k == 0)), ++k), ...);
    });
  }
  std::array<double, sizeof...(F)> sums;
  for (size_t k = 0; k < sums.size(); ++k) sums[k] = totals[k].value();
  return sums;
}
template <class TC, size_t kIn, class F>
HWY_INLINE double sum_of_lines(const std::array<Line, kIn>& in, int64_t count, const F& f) {
  return sums_of_lines<TC>(in, count, f)[0];
}

template <class TC, size_t kIn, class F>
HWY_INLINE TC largest_of_lines(const std::array<Line, kIn>& in, int64_t count, const F& f) {
  const hn::ScalableTag<TC> d;
  using V = hn::VFromD<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Inputs<TC, kIn> inputs(in, count);
  const V lowest = hn::Set(d, -std::numeric_limits<TC>::infinity());
  V m0 = lowest, m1 = lowest;
  for (int64_t begin = 0; begin < count; begin += kLineBlock) {
    const int64_t n = std::min(kLineBlock, count - begin);
    inputs.with_block(begin, n, [&](const auto& block) HWY_ATTR {
      int64_t i = 0;
      for (; i + 2 * lanes <= n; i += 2 * lanes) {
        block.fetch(i, 2 * lanes);
        m0 = hn::Max(m0, block.apply(d, f, i));
        m1 = hn::Max(m1, block.apply(d, f, i + lanes));
      }
      for (; i < n; i += lanes) {
        const auto is_given = hn::FirstN(d, static_cast<size_t>(n - i));
        m0 = hn::Max(m0, hn::IfThenElse(is_given, block.apply(d, f, i), lowest));
      }
    });
  }
  TC lanes_of[hn::MaxLanes(hn::ScalableTag<TC>())];
  hn::StoreU(hn::Max(m0, m1), d, lanes_of);
  return *std::max_element(lanes_of, lanes_of + lanes);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
