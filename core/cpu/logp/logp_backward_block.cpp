// The gradient of one block of a row of logits, for every instruction set.
//
// dz = p (g_lse - g_logp - g_entropy (log p + entropy)) off the target is p (w0 + w1 y) with y = log2 p; the one target
// element is computed in fp64 and put over it. Contiguous logits and gradients are read and written where they are,
// everything else goes through buffers in L1.
#include "core/cpu/logp/logp_backward_block.hpp"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/logp/logp_backward_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/logp/logp_gather-inl.hpp"
#include "core/cpu/simd/past_caches-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// Gradients from logits: first log2 p of each vector, then p of several at once, then the product.
template <bool kCap, bool kEntropy, class D>
class Gradient {
  using TC = hn::TFromD<D>;
  using V = hn::VFromD<D>;

public:
  Gradient(const Scores& scores, const RowGradient& row)
      : softcap_(scores.softcap),
        slope_(static_cast<TC>(scores.slope)),
        base_(scores, row.lse),
        weight_(static_cast<TC>((row.grad_lse - row.grad_logp - row.grad_entropy * row.entropy) * scores.slope * kLn2)),
        weight_log_(static_cast<TC>(-row.grad_entropy * kLn2 * scores.slope * kLn2)),
        of_score_(static_cast<TC>(row.grad_scores * scores.slope * kLn2)) {}

  // x becomes the derivative of the cap.
  HWY_INLINE V log2_p(D d, V& x) const {
    const V capped = kCap ? cap(d, x, softcap_, x) : x;
    const V y = hn::MulSub(hn::Sub(capped, hn::Set(d, base_.high)), hn::Set(d, slope_), hn::Set(d, base_.low_power));
    return at_most(d, kMostLog2, y);
  }
  // weights: those of the scores' own sum, or null.
  HWY_INLINE V finish(D d, V derivative, V y, V p, const TC* weights) const {
    V weight = hn::Set(d, weight_);
    if (kEntropy) weight = hn::MulAdd(at_least(d, TC{-2000}, y), hn::Set(d, weight_log_), weight);  // 0 * -inf
    V gradient = hn::Mul(p, weight);
    if (weights != nullptr) gradient = hn::MulAdd(hn::LoadU(d, weights), hn::Set(d, of_score_), gradient);
    return kCap ? hn::Mul(gradient, derivative) : gradient;
  }

private:
  // p passes 1 by the rounding of lse; where that has no digits behind the point, by no more than this, and stays
  // finite.
  static constexpr TC kMostLog2 = TC{1} / 64;

  double softcap_;
  TC slope_;
  Base<TC> base_;
  TC weight_, weight_log_, of_score_;
};

// sums[lane] += v[lane] in fp64.
template <class D>
HWY_INLINE void add_to([[maybe_unused]] D d, hn::VFromD<D> v, double* sums) {
  const hn::ScalableTag<double> dd;
  const auto add = [&](auto wide, double* to) HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(dd, to), wide), dd, to); };
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    add(v, sums);
  } else {
#if HWY_TARGET == HWY_SCALAR
    add(hn::PromoteTo(dd, v), sums);
#else
    const hn::Half<D> half;
    add(hn::PromoteTo(dd, hn::LowerHalf(half, v)), sums);
    add(hn::PromoteTo(dd, hn::UpperHalf(half, v)), sums + hn::Lanes(dd));
#endif
  }
}

// Writes the gradients of `count` contiguous logits and adds them to sums, if given. True when a logit is not -inf.
// weights may be read up to a whole vector.
template <bool kCap, bool kEntropy, class D, typename TIn, typename TOut>
HWY_NOINLINE bool gradients_as(D d, const TIn* from, int64_t count, const Scores& scores, const RowGradient& row,
                               TOut* to, double* sums, int64_t ahead, const hn::TFromD<D>* weights) {
  using V = hn::VFromD<D>;
  using TC = hn::TFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Gradient<kCap, kEntropy, D> gradient(scores, row);
  const auto minus_inf = hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity());
  auto all_masked = hn::Not(hn::FirstN(d, 0));
  // A logit of -inf gets 0, also where lse is NaN.
  const auto put = [&](V x, V derivative, V y, V p, int64_t at, TOut* out, double* sum) HWY_ATTR {
    const auto masked = hn::Eq(x, minus_inf);
    all_masked = hn::And(all_masked, masked);
    const TC* const own = weights != nullptr ? weights + at : nullptr;
    const V result = hn::IfThenZeroElse(masked, gradient.finish(d, derivative, y, p, own));
    store(d, result, out);
    if (sum != nullptr) add_to(d, result, sum);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    prefetch_ahead(from + i, 4 * lanes, ahead);
    const V x0 = load(d, from + i), x1 = load(d, from + i + lanes);
    const V x2 = load(d, from + i + 2 * lanes), x3 = load(d, from + i + 3 * lanes);
    V c0 = x0, c1 = x1, c2 = x2, c3 = x3;
    const V y0 = gradient.log2_p(d, c0), y1 = gradient.log2_p(d, c1);
    const V y2 = gradient.log2_p(d, c2), y3 = gradient.log2_p(d, c3);
    V p0 = y0, p1 = y1, p2 = y2, p3 = y3;
    exp2_four<false>(d, p0, p1, p2, p3);
    const auto sum_at = [&](int64_t k) { return sums != nullptr ? sums + i + k * lanes : nullptr; };
    put(x0, c0, y0, p0, i, to + i, sum_at(0));
    put(x1, c1, y1, p1, i + lanes, to + i + lanes, sum_at(1));
    put(x2, c2, y2, p2, i + 2 * lanes, to + i + 2 * lanes, sum_at(2));
    put(x3, c3, y3, p3, i + 3 * lanes, to + i + 3 * lanes, sum_at(3));
  }
  // One vector at a time; the last one padded with masked logits, which change nothing.
  for (; i < count; i += lanes) {
    const auto n = static_cast<size_t>(std::min(lanes, count - i));
    TIn in[hn::MaxLanes(D())];
    TOut out[hn::MaxLanes(D())];
    double sum[hn::MaxLanes(D())] = {};
    std::fill(in, in + lanes, minus_inf_of<TIn>());
    std::memcpy(in, from + i, n * sizeof(TIn));
    const V x = load(d, static_cast<const TIn*>(in));
    V derivative = x;
    const V y = gradient.log2_p(d, derivative);
    put(x, derivative, y, exp2(d, y), i, static_cast<TOut*>(out), static_cast<double*>(sum));
    std::memcpy(to + i, out, n * sizeof(TOut));
    for (size_t lane = 0; sums != nullptr && lane < n; ++lane) sums[i + static_cast<int64_t>(lane)] += sum[lane];
  }
  return kCap || !hn::AllTrue(d, all_masked);  // a capped score is finite
}

template <bool kCap, class D, typename TIn, typename TOut>
HWY_INLINE bool gradients(D d, const TIn* from, int64_t count, const Scores& scores, const RowGradient& row, TOut* to,
                          double* sums, int64_t ahead, const hn::TFromD<D>* weights = nullptr) {
  return row.grad_entropy != 0 ? gradients_as<kCap, true>(d, from, count, scores, row, to, sums, ahead, weights)
                               : gradients_as<kCap, false>(d, from, count, scores, row, to, sums, ahead, weights);
}

// Of contiguous logits to contiguous gradients, past the caches where these exceed them and are not the logits' memory.
template <typename T>
HWY_INLINE bool gradients_of(const T* row, int64_t begin, int64_t end, const Scores& scores, const RowGradient& g,
                             const Line& grad, double* bias_sums, int64_t ahead) {
  const hn::ScalableTag<float> d;
  T* const to = static_cast<T*>(grad.data);
  if (!grad.exceeds_caches || to == row) {
    return gradients<false>(d, row + begin, end - begin, scores, g, to + begin, bias_sums, ahead);
  }
  bool any = false;
  constexpr int64_t kPart = 1024;
  HWY_ALIGN T part[kPart];
  for (int64_t at = begin; at < end; at += kPart) {
    const int64_t count = std::min(kPart, end - at);
    double* const sums = bias_sums != nullptr ? bias_sums + (at - begin) : nullptr;
    any |= gradients<false>(d, row + at, count, scores, g, static_cast<T*>(part), sums, ahead);
    copy_past_caches(part, count * static_cast<int64_t>(sizeof(T)), to + at);
  }
  hwy::FlushStream();
  return any;
}

// The target's gradient in fp64.
double target_gradient(const Scores& scores, const void* row, const RowGradient& g) {
  if (scores.keep != nullptr && scores.keep[g.target * scores.keep_stride] == 0) return 0;
  double x = load_element(row, scores.dtype, g.target * scores.col_stride);
  if (scores.bias != nullptr) x += load_element(scores.bias, scores.dtype, g.target * scores.bias_stride);
  if (x == -std::numeric_limits<double>::infinity()) return 0;
  const double t = scores.softcap > 0 ? std::tanh(x / scores.softcap) : 0;
  const double capped = scores.softcap > 0 ? scores.softcap * t : x;
  const double log_p = std::min(log_probability(scores, capped, g.lse), 1.0 / 64);  // as kMostLog2
  const double p = std::exp(log_p);
  const double rest = g.grad_lse - (g.grad_entropy != 0 ? g.grad_entropy * (log_p + g.entropy) : 0);
  const double dz = rest * p - g.grad_logp * std::expm1(log_p) + g.grad_score(g.target);
  return dz * (1 - t * t) / scores.temperature;
}

// Whether keep_mask, if there is one, keeps something of columns [begin, end).
bool keeps_any(const Scores& scores, int64_t begin, int64_t end) {
  bool any = scores.keep == nullptr;
  for (int64_t v = begin; v < end && !any; ++v) any = scores.keep[v * scores.keep_stride] != 0;
  return any;
}

// Through a buffer: any strides, options and dtypes.
template <typename TC>
HWY_NOINLINE bool buffered(const Scores& scores, const void* row, int64_t begin, int64_t end, const RowGradient& g,
                           const Line& grad, double* bias_sums) {
  const hn::ScalableTag<TC> d;
  HWY_ALIGN TC buffer[kGatherBuffer];
  TC* const p = buffer;
  gather(scores, row, begin, end, p);
  drop(scores, begin, end, p);
  const int64_t count = end - begin;
  TC weights[kGatherBuffer];
  if (g.grad_scores != 0) {
    std::fill(weights, weights + count + static_cast<int64_t>(hn::Lanes(d)), TC{1});
    if (g.weights != nullptr) {
      const Array& from = *g.weights;
      widen(element(from.data, begin * from.strides[0], from.dtype), from.dtype, from.strides[0], count,
            static_cast<TC*>(weights));
    }
  }
  const TC* const given = g.grad_scores != 0 ? weights : nullptr;
  bool any = false;
  if (scores.softcap > 0) {
    any = gradients<true>(d, static_cast<const TC*>(p), count, scores, g, p, bias_sums, 0, given) &&
          keeps_any(scores, begin, end);
  } else {
    any = gradients<false>(d, static_cast<const TC*>(p), count, scores, g, p, bias_sums, 0, given);
  }
  narrow(p, count, grad.from(begin).data, scores.dtype, grad.stride);
  return any;
}

bool gradient_for(const Scores& scores, const void* row, int64_t row_stride, int64_t begin, int64_t end,
                  const RowGradient& g, const Line& grad, double* bias_sums) {
  const bool has_target = g.target >= begin && g.target < end;
  const double target = has_target ? target_gradient(scores, row, g) : 0;  // before the gradient may overwrite it
  double* const target_sum = has_target && bias_sums != nullptr ? bias_sums + (g.target - begin) : nullptr;
  const double new_target_sum = target_sum != nullptr ? *target_sum + target : 0;
  const bool as_they_are = scores.bias == nullptr && scores.softcap == 0 && scores.keep == nullptr &&
                           scores.col_stride == 1 && grad.stride == 1 && g.grad_scores == 0;
  bool any = false;
  if (scores.in_f64 || !g.fits_f32(scores.slope)) {
    any = buffered<double>(scores, row, begin, end, g, grad, bias_sums);
  } else if (!as_they_are) {
    any = buffered<float>(scores, row, begin, end, g, grad, bias_sums);
  } else {
    with_element(scores.dtype, [&](auto tag) HWY_ATTR {
      using T = decltype(tag);
      if constexpr (sizeof(T) <= 4) {
        const int64_t ahead = bias_sums != nullptr ? row_stride * static_cast<int64_t>(sizeof(T)) : kPrefetchBytes;
        any = gradients_of(static_cast<const T*>(row), begin, end, scores, g, grad, bias_sums, ahead);
      }
    });
  }
  if (has_target) store_element(grad.data, scores.dtype, g.target * grad.stride, target);
  if (target_sum != nullptr) *target_sum = new_target_sum;
  return any;
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(gradient_for);

bool gradient_block(const Scores& scores, const void* row, int64_t row_stride, int64_t begin, int64_t end,
                    const RowGradient& gradient, const Line& grad, double* bias_sums) {
  return HWY_DYNAMIC_DISPATCH(gradient_for)(scores, row, row_stride, begin, end, gradient, grad, bias_sums);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
