// Importance ratio and KL estimate of a token, and their gradient, in fp64.
#if defined(RLK_FORMULA_RATIO_KL) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_RATIO_KL
#undef RLK_FORMULA_RATIO_KL
#else
#define RLK_FORMULA_RATIO_KL
#endif

#include <rlk/formula/estimates.hpp>

RLK_FORMULA_BEGIN

// What the parameters and optional arguments of a call ask for, enumerations by the declarations' numbers.
struct RatioKlTerms {
  enum class Kind { k1, abs, k2, k3 };
  enum class Gradient { value, k2, k2_weighted };
  double x_bound, d_bound, bound;  // of the log-ratio, of the difference of log-probabilities, of kl
  double masked_ratio;
  double at_bound, largest_weight;  // of the gradient
  Kind kind;
  Gradient gradient;
  bool by_ratio, has_old, has_kl;
  // Of what is computed in fp32: sizes below which no bound is near, and the ratio of a masked token.
  float sure_x, sure_d, sure_kl, short_masked_ratio;

  static bool asks_f64() { return true; }
};
// What is smaller is below the bound, however fp32 rounds it.
RLK_FORMULA float sure_size(double bound, double largest) {
  return static_cast<float>((bound < largest ? bound : largest) * (1 - 0x1p-20));
}
template <class Params>
RLK_FORMULA RatioKlTerms estimates_of(const Params& params, bool has_old, bool has_kl) {
  RatioKlTerms terms{};
  terms.x_bound = formula::bound_or_none(params.log_ratio_clamp);
  terms.d_bound = formula::bound_or_none(params.diff_clamp);
  terms.bound = formula::bound_or_none(params.value_clamp);
  terms.kind = static_cast<RatioKlTerms::Kind>(params.kl_kind);
  terms.by_ratio = params.kl_weight == decltype(params.kl_weight)::ratio;
  terms.has_old = has_old;
  terms.has_kl = has_kl;
  terms.sure_x = sure_size(terms.x_bound, 80);
  terms.sure_d = sure_size(terms.d_bound, 80);
  terms.sure_kl = sure_size(terms.bound, 0x1p120);
  return terms;
}
template <class Params>
RLK_FORMULA RatioKlTerms ratio_kl_terms(const Params& params, bool has_old, bool has_kl) {
  RatioKlTerms terms = estimates_of(params, has_old, has_kl);
  terms.masked_ratio = params.masked_ratio;
  terms.short_masked_ratio = static_cast<float>(params.masked_ratio);
  return terms;
}
template <class Params>
RLK_FORMULA RatioKlTerms ratio_kl_gradient_terms(const Params& params, bool has_old, bool has_kl) {
  RatioKlTerms terms = estimates_of(params, has_old, has_kl);
  terms.gradient = static_cast<RatioKlTerms::Gradient>(params.kl_gradient);
  terms.at_bound = formula::gradient_at_bound(params.clamp_gradient);
  terms.largest_weight = params.kl_gradient_weight_max;
  return terms;
}

// Without old_logp it is logp itself, its gradient stopped; 1 times a NaN is a NaN.
template <class V>
RLK_FORMULA V log_ratio(const RatioKlTerms& terms, V logp, V old_logp) {
  return terms.has_old ? Sub(logp, old_logp) : IfThenElseZero(IsNaN(logp), logp);
}

template <class D, class V>
RLK_FORMULA V ratio_of(D d, const RatioKlTerms& terms, V logp, V old_logp, V mask) {
  const V ratio = exp(d, clamped(d, log_ratio(terms, logp, old_logp), -terms.x_bound, terms.x_bound));
  return IfThenElse(Ne(mask, Zero(d)), ratio, number(d, terms.masked_ratio));
}
template <class D, class V>
RLK_FORMULA V kl_of(D d, const RatioKlTerms& terms, V logp, V old_logp, V ref_logp, V mask) {
  V kl = kl_estimate(d, terms.kind, clamped(d, Sub(ref_logp, logp), -terms.d_bound, terms.d_bound)).value;
  if (terms.by_ratio) kl = times(d, exp(d, log_ratio(terms, logp, old_logp)), kl);
  return IfThenElseZero(Ne(mask, Zero(d)), clamped(d, kl, -terms.bound, terms.bound));
}

// By the log-ratio and the difference.
template <class D, class V>
RLK_FORMULA V kl_slope(D d, const RatioKlTerms& terms, V delta, V difference) {
  using Gradient = RatioKlTerms::Gradient;
  if (terms.gradient == Gradient::k2) return Neg(difference);
  if (terms.gradient == Gradient::k2_weighted) {
    return Neg(times(d, difference, k2_weight(d, delta, terms.largest_weight)));
  }
  const auto f = kl_estimate(d, terms.kind, clamped(d, difference, -terms.d_bound, terms.d_bound));
  V value = f.value;
  V slope = clamped_slope(d, Neg(f.slope), difference, -terms.d_bound, terms.d_bound, terms.at_bound);
  if (terms.by_ratio) {
    const V weight = exp(d, delta);
    value = times(d, weight, value);
    slope = Add(times(d, weight, slope), value);
  }
  return clamped_slope(d, slope, value, -terms.bound, terms.bound, terms.at_bound);
}
template <class D, class V>
RLK_FORMULA V ratio_kl_gradient(D d, const RatioKlTerms& terms, V logp, V old_logp, V ref_logp, V mask, V of_ratio,
                                V of_kl) {
  const V delta = log_ratio(terms, logp, old_logp);
  V slope =
      weighted(d, of_ratio, clamped_slope(d, exp(d, delta), delta, -terms.x_bound, terms.x_bound, terms.at_bound));
  if (terms.has_kl) {
    slope = MulAdd(of_kl, unless_zero(d, of_kl, kl_slope(d, terms, delta, Sub(ref_logp, logp))), slope);
  }
  return IfThenElseZero(Ne(mask, Zero(d)), slope);
}

RLK_FORMULA_END
#endif
