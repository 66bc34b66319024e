// Importance ratio and KL estimate of every token, and their gradient.
#include "../skeleton/map.cuh"

#include "../skeleton/short_power.cuh"

#include <rlk/formula/ratio_kl.hpp>

namespace rlk::formula {

// Ratio and estimate in fp32, of tokens that leave no doubt: what no clamp is near, and fp32 holds. The difference of
// two logarithms is exact, a number and what it has lost. Beyond |d| < 1 the k3 estimate is
// 2^n (2^f - 1) + (2^n - 1 - d), whose largest term is at most two and a half times the sum. With eps 2^-24, of the
// result: the power is good to 2 eps and the estimate to 5, of which a sweep of 1.5 million numbers is the evidence
// (4.5 at most) and no proof.
struct ShortRatioKl {
  Two<float> values;
  bool is_sure;
};
// (e^x - 1 - x) / x^2, |x| < 1.
RLK_FORMULA float short_series(float x) {
  const Lane<float> d;
  return horner(d, x, 2.839996202530807e-07, 2.81600995579308e-06, 2.4792189115442957e-05, 0.00019836463399500038,
                0.0013888924409425304, 0.008333347500106943, 0.041666666323261194, 0.16666666554327392, 0.5);
}
// e^x - 1 - x of x + lost.
RLK_FORMULA float short_above_tangent(float x, float lost) {
  const ShortPower power = short_power(x, 0);
  const float near = Mul(Mul(x, x), short_series(x));
  const float far = MulAdd(power.part, power.scale, Sub(Add(power.scale, -1.0f), x));
  const float value = Abs(x) < 1 ? near : far;
  // What is lost is at most half a unit of x: its slope is e^x - 1, which is the value and x.
  return MulAdd(lost, Add(value, x), value);
}
// e^x - 1 of the same.
RLK_FORMULA float short_minus_one(float x, float lost) {
  const ShortPower power = short_power(x, 0);
  const float near = MulAdd(Mul(x, x), short_series(x), x);
  const float far = MulAdd(power.part, power.scale, Add(power.scale, -1.0f));
  const float value = Abs(x) < 1 ? near : far;
  return MulAdd(lost, Add(value, 1.0f), value);
}
// The commonest calls: k3 alone, with an old policy (1) or without (2).
RLK_FORMULA int short_shape(const RatioKlTerms& terms) {
  if (terms.kind != RatioKlTerms::Kind::k3 || terms.by_ratio || !terms.has_kl) return 0;
  return terms.has_old ? 1 : 2;
}
template <class Shape>
RLK_FORMULA ShortRatioKl short_ratio_kl(Shape, const RatioKlTerms& terms, float logp, float old_logp, float ref_logp,
                                        float mask) {
  using Kind = RatioKlTerms::Kind;
  const bool has_old = Shape::value == 0 ? terms.has_old : Shape::value == 1;
  const bool is_k3 = Shape::value != 0 || terms.kind == Kind::k3, has_kl = Shape::value != 0 || terms.has_kl;
  ShortRatioKl out = {{1, 0}, logp == logp};
  float ratio = 1;
  if (has_old) {
    const Two<float> x = short_difference(logp, old_logp);
    ratio = short_power(x.first, x.second).value();
    out.is_sure = Abs(x.first) < terms.sure_x;
  }
  const bool is_kept = mask != 0;
  out.values.first = is_kept ? ratio : terms.short_masked_ratio;
  if (has_kl) {
    const Two<float> x = short_difference(ref_logp, logp);
    float kl = 0;
    if (is_k3) {
      kl = short_above_tangent(x.first, x.second);
    } else if (terms.kind == Kind::k2) {
      kl = Mul(0.5f, Mul(x.first, x.first));
    } else {
      kl = terms.kind == Kind::k1 ? -x.first : Abs(x.first);
    }
    if (Shape::value == 0 && terms.by_ratio) kl = Mul(ratio, kl);
    out.values.second = is_kept ? kl : 0;
    const bool is_normal = Abs(kl) > 0x1p-100f || x.first == 0;
    out.is_sure = out.is_sure && Abs(x.first) < terms.sure_d && is_normal && Abs(kl) < terms.sure_kl;
  }
  out.is_sure = out.is_sure || !is_kept;
  return out;
}

// The gradient, of tokens that leave no doubt. What flows through the weight and what flows through the estimate have
// most of their terms in common, F - F': they are taken out before they are rounded.
struct ShortRatioKlGradient {
  float values;
  bool is_sure;
};
RLK_FORMULA int short_gradient_shape(const RatioKlTerms& terms) {
  return terms.gradient == RatioKlTerms::Gradient::value ? short_shape(terms) : 0;
}
struct ShortSlope {
  float of_logp, size;  // a bound of the estimate, which a clamp may be near
};
template <class Shape>
RLK_FORMULA ShortSlope short_slope(Shape, const RatioKlTerms& terms, float ratio, const Two<float>& x) {
  using Kind = RatioKlTerms::Kind;
  using Gradient = RatioKlTerms::Gradient;
  const float far = x.first, size = Abs(x.first);
  if (Shape::value == 0 && terms.gradient != Gradient::value) {
    const auto largest = static_cast<float>(terms.largest_weight);
    const bool is_weighted = terms.gradient == Gradient::k2_weighted;
    return {is_weighted ? Mul(-far, ratio < largest ? ratio : largest) : -far, 0};
  }
  if (Shape::value != 0 || terms.kind == Kind::k3) {
    const float power = short_minus_one(x.first, x.second), bound = Add(Abs(power), size);
    if (Shape::value != 0 || !terms.by_ratio) return {-power, bound};
    return {Mul(ratio, -far), Mul(ratio, bound)};
  }
  const bool is_k2 = terms.kind == Kind::k2;
  const float value = is_k2 ? Mul(0.5f, Mul(far, far)) : terms.kind == Kind::k1 ? -far : size;
  const float slope = is_k2 ? far : terms.kind == Kind::k1 ? -1.0f : far > 0 ? 1.0f : far < 0 ? -1.0f : 0.0f;
  if (!terms.by_ratio) return {-slope, Abs(value)};
  return {Mul(ratio, Sub(value, slope)), Mul(ratio, Abs(value))};
}
template <class Shape>
RLK_FORMULA ShortRatioKlGradient short_ratio_kl_gradient(Shape shape, const RatioKlTerms& terms, float logp,
                                                         float old_logp, float ref_logp, float mask, float of_ratio,
                                                         float of_kl) {
  const bool has_old = Shape::value == 0 ? terms.has_old : Shape::value == 1;
  const bool has_kl = Shape::value != 0 || terms.has_kl;
  bool is_sure = logp == logp, is_nothing = of_ratio == 0;
  float ratio = 1;
  if (has_old) {
    const Two<float> x = short_difference(logp, old_logp);
    ratio = short_power(x.first, x.second).value();
    is_sure = Abs(x.first) < terms.sure_x;
  }
  float gradient = Mul(of_ratio, ratio);
  if (has_kl) {
    const Two<float> x = short_difference(ref_logp, logp);
    const ShortSlope slope = short_slope(shape, terms, ratio, x);
    gradient = MulAdd(of_kl, slope.of_logp, gradient);
    is_nothing = is_nothing && (of_kl == 0 || slope.of_logp == 0);
    is_sure = is_sure && Abs(x.first) < terms.sure_d && slope.size < terms.sure_kl;
  }
  const bool is_normal = Abs(gradient) > 0x1p-90f && Abs(gradient) < 0x1p120f;
  const bool is_kept = mask != 0;
  return {is_kept ? gradient : 0, !is_kept || (is_sure && (is_normal || is_nothing))};
}

}  // namespace rlk::formula

RLK_SIMT_MAP_SHORT_BY(RatioKl, (ratio, kl), (call.ratio, or_none(call.kl)), (logp, old_logp, ref_logp, mask),
                      (call.logp, or_number(call.old_logp, 0), or_number(call.ref_logp, 0), or_number(call.mask, 1)),
                      (RatioKlTerms, terms, ratio_kl_terms(call.params, call.old_logp != nullptr, call.kl != nullptr)),
                      short_shape(terms), short_ratio_kl(shape, terms, logp, old_logp, ref_logp, mask),
                      Two<V>{ratio_of(d, terms, logp, old_logp, mask),
                             terms.has_kl ? kl_of(d, terms, logp, old_logp, ref_logp, mask) : Zero(d)})
RLK_SIMT_MAP_SHORT_BY(RatioKlBackward, (grad_logp), (call.grad_logp),
                      (logp, old_logp, ref_logp, mask, grad_ratio, grad_kl),
                      (call.logp, or_number(call.old_logp, 0), or_number(call.ref_logp, 0), or_number(call.mask, 1),
                       call.grad_ratio, or_number(call.grad_kl, 0)),
                      (RatioKlTerms, terms,
                       ratio_kl_gradient_terms(call.params, call.old_logp != nullptr, call.grad_kl != nullptr)),
                      short_gradient_shape(terms),
                      short_ratio_kl_gradient(shape, terms, logp, old_logp, ref_logp, mask, grad_ratio, grad_kl),
                      ratio_kl_gradient(d, terms, logp, old_logp, ref_logp, mask, grad_ratio, grad_kl))
