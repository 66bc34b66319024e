// Partial sums of exponentials over one block of a row of logits, for every instruction set.
//
// Two cases. Plain: contiguous fp32, bf16 or f16 logits are read where they are. Everything else (bias, softcap,
// strides, fp64) is first brought into a contiguous buffer in L1 and then summed like plain fp32 or fp64.
#include "core/cpu/logp/logp_block.hpp"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/logp/logp_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/logp/logp_gather-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

template <typename TC>
constexpr TC kMinusInf = -std::numeric_limits<TC>::infinity();

template <typename T>
HWY_INLINE bool is_minus_inf(T value) {
  if constexpr (sizeof(T) == 2) {
    const T expected = minus_inf_of<T>();
    return std::memcmp(&value, &expected, sizeof(T)) == 0;
  } else {
    return value == minus_inf_of<T>();
  }
}
// The last, partial group of two vectors, padded with -inf.
template <class D, typename T>
HWY_INLINE void load_tail(D d, const T* p, int64_t count, hn::VFromD<D>& first, hn::VFromD<D>& second) {
  T padded[2 * hn::MaxLanes(D())];
  const size_t lanes = 2 * hn::Lanes(d);
  for (size_t i = 0; i < lanes; ++i) padded[i] = static_cast<int64_t>(i) < count ? p[i] : minus_inf_of<T>();
  load_two(d, static_cast<const T*>(padded), first, second);
}

template <class D>
HWY_INLINE double lane_sum(D d, hn::VFromD<D> v) {
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, v)));
}

// The maximum, in eight chains; unspecified when a NaN is among the elements.
template <class D, typename T>
HWY_INLINE hn::TFromD<D> max_of(D d, const T* p, int64_t count) {
  using V = hn::VFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V max0 = hn::Set(d, kMinusInf<hn::TFromD<D>>);
  V max1 = max0, max2 = max0, max3 = max0, max4 = max0, max5 = max0, max6 = max0, max7 = max0;
  V first = max0, second = max0;
  int64_t i = 0;
  for (; i + 8 * lanes <= count; i += 8 * lanes) {
    load_two(d, p + i, first, second);
    max0 = hn::Max(max0, first), max1 = hn::Max(max1, second);
    load_two(d, p + i + 2 * lanes, first, second);
    max2 = hn::Max(max2, first), max3 = hn::Max(max3, second);
    load_two(d, p + i + 4 * lanes, first, second);
    max4 = hn::Max(max4, first), max5 = hn::Max(max5, second);
    load_two(d, p + i + 6 * lanes, first, second);
    max6 = hn::Max(max6, first), max7 = hn::Max(max7, second);
  }
  for (; i < count; i += 2 * lanes) {
    if (i + 2 * lanes <= count) {
      load_two(d, p + i, first, second);
    } else {
      load_tail(d, p + i, count - i, first, second);
    }
    max0 = hn::Max(max0, first), max1 = hn::Max(max1, second);
  }
  max0 = hn::Max(hn::Max(max0, max1), hn::Max(max2, max3));
  return largest_lane(d, hn::Max(max0, hn::Max(hn::Max(max4, max5), hn::Max(max6, max7))));
}

struct Partial {
  double sum, weighted, squares;
};

// sum 2^((p[i] - max) * slope) in four chains, in fp32 or fp64; the blocks are short enough for that to stay near 1
// ulp. The difference comes first: it is exact where it counts, near the maximum, however large the scores are. p[i] *
// slope would be rounded by more than the small differences between large scores.
template <Sums kWanted, class D, typename T>
HWY_INLINE Partial sum_of(D d, const T* p, int64_t count, double slope_value, hn::TFromD<D> max_value) {
  using TC = hn::TFromD<D>;
  using V = hn::VFromD<D>;
  constexpr bool kEntropy = kWanted != Sums::plain, kSquares = kWanted == Sums::weighted_and_squares;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V slope = hn::Set(d, static_cast<TC>(slope_value));
  const V max = hn::Set(d, max_value);
  V sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  V weighted0 = sum0, weighted1 = sum0, weighted2 = sum0, weighted3 = sum0;
  V squares0 = sum0, squares1 = sum0, squares2 = sum0, squares3 = sum0;
  const auto score = [&](V x) HWY_ATTR { return hn::Mul(hn::Sub(x, max), slope); };
  // Terms of the weighted sum: 0 * -inf is not wanted, and what counts as 0 in one sum is 0 in both.
  const auto weigh = [&](V power, V y, V& weighted)
                         HWY_ATTR { weighted = hn::MulAdd(power, at_least(d, Exp2<TC>::kLowest, y), weighted); };
  V x0 = sum0, x1 = sum0, x2 = sum0, x3 = sum0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    prefetch_ahead(p + i, 4 * lanes, kPrefetchBytes);
    load_two(d, p + i, x0, x1);
    load_two(d, p + i + 2 * lanes, x2, x3);
    const V y0 = score(x0), y1 = score(x1), y2 = score(x2), y3 = score(x3);
    x0 = y0, x1 = y1, x2 = y2, x3 = y3;
    exp2_four<!kEntropy>(d, x0, x1, x2, x3);
    sum0 = hn::Add(sum0, x0), sum1 = hn::Add(sum1, x1), sum2 = hn::Add(sum2, x2), sum3 = hn::Add(sum3, x3);
    if (kEntropy) {
      weigh(x0, y0, weighted0), weigh(x1, y1, weighted1);
      weigh(x2, y2, weighted2), weigh(x3, y3, weighted3);
    }
    if (kSquares) {
      squares0 = hn::MulAdd(x0, x0, squares0), squares1 = hn::MulAdd(x1, x1, squares1);
      squares2 = hn::MulAdd(x2, x2, squares2), squares3 = hn::MulAdd(x3, x3, squares3);
    }
  }
  const auto accumulate = [&](V x, V& sum, V& weighted, V& squares) HWY_ATTR {
    const V y = score(x), power = kEntropy ? exp2(d, y) : exp2_for_sum(d, y);
    sum = hn::Add(sum, power);
    if (kEntropy) weigh(power, y, weighted);
    if (kSquares) squares = hn::MulAdd(power, power, squares);
  };
  for (; i < count; i += 2 * lanes) {
    if (i + 2 * lanes <= count) {
      load_two(d, p + i, x0, x1);
    } else {
      load_tail(d, p + i, count - i, x0, x1);
    }
    accumulate(x0, sum0, weighted0, squares0);
    accumulate(x1, sum1, weighted1, squares1);
  }
  const auto total = [&](V a, V b, V c, V e) HWY_ATTR { return lane_sum(d, hn::Add(hn::Add(a, b), hn::Add(c, e))); };
  return {total(sum0, sum1, sum2, sum3), kEntropy ? total(weighted0, weighted1, weighted2, weighted3) : 0.0,
          kSquares ? total(squares0, squares1, squares2, squares3) : 0.0};
}

// A block is walked once where a guess will do for its maximum: the largest of its first elements.
constexpr int64_t kGuessed = 512;
// While the sum relative to the guess is no larger, no element is further above the guess than 9 (in nats), and so none
// is so nearly certain that rounding could bring its log-probability to 0: the guess is an element too.
constexpr double kLargestSum = 0x1p13;

template <class D, typename T>
HWY_NOINLINE BlockSums sums_at(D d, const T* p, int64_t count, double slope, Sums wanted) {
  using TC = hn::TFromD<D>;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto relative_to = [&](TC max) HWY_ATTR {
    if (wanted == Sums::plain) return sum_of<Sums::plain>(d, p, count, slope, max);
    if (wanted == Sums::weighted) return sum_of<Sums::weighted>(d, p, count, slope, max);
    return sum_of<Sums::weighted_and_squares>(d, p, count, slope, max);
  };
  if (wanted == Sums::plain && count > kGuessed) {
    const TC guess = max_of(d, p, kGuessed);
    const Partial partial = relative_to(guess);  // NaN where the guess is no number
    if (partial.sum <= kLargestSum) return {static_cast<double>(guess), partial.sum, 0, 0};
  }
  const TC max = max_of(d, p, count);
  if (max == kMinusInf<TC>) {  // NaN may hide behind it
    const bool all_masked = std::all_of(p, p + count, [](T value) { return is_minus_inf(value); });
    return all_masked ? BlockSums{kAllMasked, 0, 0, 0} : BlockSums{0, kNan, kNan, kNan};
  }
  if (!(max < std::numeric_limits<TC>::infinity())) return {0, kNan, kNan, kNan};
  const Partial partial = relative_to(max);
  return {static_cast<double>(max), partial.sum, partial.weighted, partial.squares};
}

// Columns [begin, end) as contiguous capped logits.
template <typename TC>
HWY_NOINLINE const TC* capped(const Scores& scores, const void* row, int64_t begin, int64_t end, TC* buffer) {
  gather(scores, row, begin, end, buffer);
  const hn::ScalableTag<TC> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (scores.softcap > 0) {
    auto derivative = hn::Zero(d);                      // not needed here
    for (int64_t i = 0; i < end - begin; i += lanes) {  // the last vector may run over: the buffer has room
      store(d, cap(d, load(d, buffer + i), scores.softcap, derivative), buffer + i);
    }
  }
  drop(scores, begin, end, buffer);
  return buffer;
}

// Calls function(D, contiguous elements, count) on columns [begin, end), gathered if they must be.
template <typename Function>
HWY_INLINE void with_columns(const Scores& scores, const void* row, int64_t begin, int64_t end, Function&& function) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<double> dd;
  const bool as_logits = scores.bias == nullptr && scores.softcap == 0 && scores.keep == nullptr;
  const bool as_they_are = as_logits && scores.col_stride == 1;
  if (as_they_are && scores.dtype == Dtype::f64) {
    return function(dd, static_cast<const double*>(row) + begin, end - begin);
  }
  if (scores.in_f64) {
    HWY_ALIGN double buffer[kGatherBuffer];
    return function(dd, capped(scores, row, begin, end, static_cast<double*>(buffer)), end - begin);
  }
  if (scores.dtype == Dtype::bf16 && as_logits && !as_they_are) {
    // As bf16, so that they are added in the same order, and give the same bits, as a contiguous row's.
    HWY_ALIGN Bf16 buffer[kGatherBuffer];
    const auto* from = static_cast<const Bf16*>(row);
    for (int64_t v = begin; v < end; ++v) buffer[v - begin] = from[v * scores.col_stride];
    return function(df, static_cast<const Bf16*>(buffer), end - begin);
  }
  if (!as_they_are) {
    HWY_ALIGN float buffer[kGatherBuffer];
    return function(df, capped(scores, row, begin, end, static_cast<float*>(buffer)), end - begin);
  }
  switch (scores.dtype) {
    case Dtype::bf16:
      return function(df, static_cast<const Bf16*>(row) + begin, end - begin);
    case Dtype::f16:
      return function(df, static_cast<const F16*>(row) + begin, end - begin);
    default:
      return function(df, static_cast<const float*>(row) + begin, end - begin);
  }
}

BlockSums block_sums_for(const Scores& scores, const void* row, int64_t begin, int64_t end, Sums wanted) {
  BlockSums sums{};
  with_columns(scores, row, begin, end, [&](auto d, const auto* p, int64_t count) HWY_ATTR {
    sums = sums_at(d, p, count, scores.slope, wanted);
  });
  return sums;
}

double capped_logit_for(const Scores& scores, const void* row, int64_t column) {
  double value = 0;
  with_columns(scores, row, column, column + 1, [&](auto d, const auto* p, int64_t count) HWY_ATTR {
    value = static_cast<double>(max_of(d, p, count));
  });
  return value;
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(block_sums_for);
HWY_EXPORT(capped_logit_for);

Scores make_scores(Dtype dtype, double temperature, double softcap, int64_t col_stride, const Array& bias) {
  const double slope = kLog2e / temperature;
  const auto fits_f32 = [](double value) { return value > 0x1p-60 && value < 0x1p60; };
  const bool wide = dtype == Dtype::f64 || !fits_f32(slope) || (softcap > 0 && !fits_f32(softcap));
  return {dtype, wide, slope, temperature, softcap, col_stride, bias.data, bias.strides[0]};
}

BlockSums block_sums(const Scores& scores, const void* row, int64_t begin, int64_t end, Sums wanted) {
  return HWY_DYNAMIC_DISPATCH(block_sums_for)(scores, row, begin, end, wanted);
}
double capped_logit(const Scores& scores, const void* row, int64_t column) {
  return HWY_DYNAMIC_DISPATCH(capped_logit_for)(scores, row, column);
}
double score_of(const Scores& scores, const void* row, int64_t column) {
  return capped_logit(scores, row, column) / scores.temperature;
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
