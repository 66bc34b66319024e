// Partial sums of exponentials over one block of a row of logits, for every instruction set.
//
// Two cases. Plain: contiguous fp32, bf16 or f16 logits are read where they are. Everything else (bias, softcap,
// strides, fp64) is first brought into a contiguous buffer in L1 and then summed like plain fp32 or fp64.
#include "core/cpu/logp/logp_block.hpp"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/logp/logp_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/logp/logp_gather-inl.hpp"
#include "core/cpu/simd/long_sum.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// A shift that was guessed from the row's first block stays while the sum is no larger: then no y lies more than 20
// above it, which costs nothing in precision. (NaN is larger: the second try gives it again.)
constexpr double kLargestSum = 0x1p20;
// Beyond this |shift| fp32 cannot tell y from the shift any more: such blocks take fp64 (finfo.min as a mask of a whole
// row, say), and beyond the second limit the difference to the maximum is taken before the slope.
constexpr double kLargestF32 = 0x1p20;
constexpr double kLargestF64 = 0x1p40;

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

// The maximum; unspecified when a NaN is among the elements.
template <class D, typename T>
HWY_INLINE hn::TFromD<D> max_of(D d, const T* p, int64_t count) {
  const auto step = 2 * static_cast<int64_t>(hn::Lanes(d));
  auto max0 = hn::Set(d, kMinusInf<hn::TFromD<D>>);
  auto max1 = max0;
  auto first = max0, second = max0;
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    load_two(d, p + i, first, second);
    max0 = hn::Max(max0, first);
    max1 = hn::Max(max1, second);
  }
  if (i < count) {
    load_tail(d, p + i, count - i, first, second);
    max0 = hn::Max(max0, first);
    max1 = hn::Max(max1, second);
  }
  return largest_lane(d, hn::Max(max0, max1));
}

// The smallest integer not below any p[i] * slope; -inf when every element is, NaN when there is a NaN or +inf.
template <class D, typename T>
HWY_INLINE double shift_of(D d, const T* p, int64_t count, double slope) {
  using TC = hn::TFromD<D>;
  const TC max = max_of(d, p, count);
  if (max == kMinusInf<TC>) {  // NaN may hide behind it
    for (int64_t i = 0; i < count; ++i) {
      if (!is_minus_inf(p[i])) return std::numeric_limits<double>::quiet_NaN();
    }
    return kNoShift;
  }
  if (!(max < std::numeric_limits<TC>::infinity())) return std::numeric_limits<double>::quiet_NaN();
  return std::ceil(static_cast<double>(max) * slope);
}

struct Partial {
  double sum, weighted;
};

// sum 2^(p[i] * slope - shift) in four chains, in fp32 or fp64; the blocks are short enough for that to stay near 1
// ulp.
template <bool kEntropy, class D, typename T>
HWY_INLINE Partial sum_of(D d, const T* p, int64_t count, double slope_value, double shift_value) {
  using TC = hn::TFromD<D>;
  using V = hn::VFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V slope = hn::Set(d, static_cast<TC>(slope_value));
  const V shift = hn::Set(d, static_cast<TC>(-shift_value));
  V sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  V weighted0 = sum0, weighted1 = sum0, weighted2 = sum0, weighted3 = sum0;
  const auto score = [&](V x) HWY_ATTR {
    const V y = hn::MulAdd(x, slope, shift);
    return kEntropy ? at_least(d, Exp2<TC>::kLowest, y) : y;  // 0 * -inf is not wanted
  };
  V x0 = sum0, x1 = sum0, x2 = sum0, x3 = sum0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    prefetch_ahead(p + i, 4 * lanes, kPrefetchBytes);
    load_two(d, p + i, x0, x1);
    load_two(d, p + i + 2 * lanes, x2, x3);
    const V y0 = score(x0), y1 = score(x1), y2 = score(x2), y3 = score(x3);
    x0 = y0, x1 = y1, x2 = y2, x3 = y3;
    exp2_four<true>(d, x0, x1, x2, x3);
    sum0 = hn::Add(sum0, x0), sum1 = hn::Add(sum1, x1), sum2 = hn::Add(sum2, x2), sum3 = hn::Add(sum3, x3);
    if (kEntropy) {
      weighted0 = hn::MulAdd(x0, y0, weighted0), weighted1 = hn::MulAdd(x1, y1, weighted1);
      weighted2 = hn::MulAdd(x2, y2, weighted2), weighted3 = hn::MulAdd(x3, y3, weighted3);
    }
  }
  const auto accumulate = [&](V x, V& sum, V& weighted) HWY_ATTR {
    const V y = score(x), power = exp2_for_sum(d, y);
    sum = hn::Add(sum, power);
    if (kEntropy) weighted = hn::MulAdd(power, y, weighted);
  };
  for (; i < count; i += 2 * lanes) {
    if (i + 2 * lanes <= count) {
      load_two(d, p + i, x0, x1);
    } else {
      load_tail(d, p + i, count - i, x0, x1);
    }
    accumulate(x0, sum0, weighted0);
    accumulate(x1, sum1, weighted1);
  }
  Partial partial;
  partial.sum = lane_sum(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
  partial.weighted =
      kEntropy ? lane_sum(d, hn::Add(hn::Add(weighted0, weighted1), hn::Add(weighted2, weighted3))) : 0.0;
  return partial;
}

// For scores so large that only their differences can be told.
HWY_NOINLINE BlockSums sums_of_differences(const double* p, int64_t count, double slope) {
  const double max = max_of(hn::ScalableTag<double>(), p, count);
  LongSum sum, weighted;
  for (int64_t i = 0; i < count; ++i) {
    const double y = (p[i] - max) * slope;
    const double power = std::exp2(y);
    sum.add(power);
    if (power > 0) weighted.add(power * y);
  }
  return {max * slope, sum.value(), weighted.value()};
}

template <class D, typename T>
HWY_NOINLINE BlockSums sums_at(D d, const T* p, int64_t count, double slope, double shift, bool entropy) {
  if (!std::isnan(shift)) {
    const Partial tried = entropy ? sum_of<true>(d, p, count, slope, shift) : sum_of<false>(d, p, count, slope, shift);
    if (tried.sum <= kLargestSum) return {shift, tried.sum, tried.weighted};
  }
  const double own = shift_of(d, p, count, slope);
  if (own == kNoShift) return {kNoShift, 0, 0};
  if (std::isnan(own)) return {0, own, own};
  if constexpr (std::is_same_v<T, double>) {
    if (std::fabs(own) > kLargestF64) return sums_of_differences(p, count, slope);
  }
  const Partial partial = entropy ? sum_of<true>(d, p, count, slope, own) : sum_of<false>(d, p, count, slope, own);
  return {own, partial.sum, partial.weighted};
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
  return buffer;
}

// Calls function(D, contiguous elements, count) on columns [begin, end), gathered if they must be.
template <typename Function>
HWY_INLINE void with_columns(const Scores& scores, const void* row, int64_t begin, int64_t end, Function&& function) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<double> dd;
  const bool as_they_are = scores.bias == nullptr && scores.softcap == 0 && scores.col_stride == 1;
  if (as_they_are && scores.dtype == Dtype::f64) {
    return function(dd, static_cast<const double*>(row) + begin, end - begin);
  }
  if (scores.in_f64) {
    HWY_ALIGN double buffer[kGatherBuffer];
    return function(dd, capped(scores, row, begin, end, static_cast<double*>(buffer)), end - begin);
  }
  if (scores.dtype == Dtype::bf16 && scores.bias == nullptr && scores.softcap == 0 && !as_they_are) {
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

double shift_for(const Scores& scores, const void* row, int64_t begin, int64_t end) {
  double shift = 0;
  with_columns(scores, row, begin, end,
               [&](auto d, const auto* p, int64_t count) HWY_ATTR { shift = shift_of(d, p, count, scores.slope); });
  return shift;
}

BlockSums sums_for(const Scores& scores, const void* row, int64_t begin, int64_t end, double shift, bool entropy) {
  BlockSums sums{};
  with_columns(scores, row, begin, end, [&](auto d, const auto* p, int64_t count) HWY_ATTR {
    sums = sums_at(d, p, count, scores.slope, shift, entropy);
  });
  const bool too_large = std::fabs(sums.shift) > kLargestF32 && sums.shift != kNoShift;
  if (too_large && !scores.in_f64) {
    Scores wide = scores;
    wide.in_f64 = true;
    return sums_for(wide, row, begin, end, std::numeric_limits<double>::quiet_NaN(), entropy);
  }
  return sums;
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(shift_for);
HWY_EXPORT(sums_for);

Scores make_scores(Dtype dtype, double temperature, double softcap, int64_t col_stride, const void* bias,
                   int64_t bias_stride) {
  const double slope = kLog2e / temperature;
  const auto fits_f32 = [](double value) { return value > 0x1p-60 && value < 0x1p60; };
  const bool wide = dtype == Dtype::f64 || !fits_f32(slope) || (softcap > 0 && !fits_f32(softcap));
  return {dtype, wide, slope, softcap, col_stride, bias, bias_stride};
}

double block_shift(const Scores& scores, const void* row, int64_t begin, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(shift_for)(scores, row, begin, end);
}
BlockSums block_sums(const Scores& scores, const void* row, int64_t begin, int64_t end, double shift, bool entropy) {
  return HWY_DYNAMIC_DISPATCH(sums_for)(scores, row, begin, end, shift, entropy);
}
namespace {

double capped_logit(const Scores& scores, const void* row, int64_t column) {
  double x = load_element(row, scores.dtype, column * scores.col_stride);
  if (scores.bias != nullptr) x += load_element(scores.bias, scores.dtype, column * scores.bias_stride);
  return scores.softcap > 0 ? scores.softcap * std::tanh(x / scores.softcap) : x;
}

}  // namespace

double power_of(const Scores& scores, const void* row, int64_t column) {
  return capped_logit(scores, row, column) * scores.slope;
}
double score_of(const Scores& scores, const void* row, int64_t column) {
  return capped_logit(scores, row, column) * (scores.slope / kLog2e);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
