// The policy loss and the KL of tokens with their derivatives, over vectors of fp64. A new kind of loss is a function
// here and a line in the switch.
//
// At kinks: the selected branch of min and max, half of each at a tie; what a clamp passes at its bounds is asked for.
#if defined(RLK_CPU_POLICY_KINDS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_POLICY_KINDS_INL
#undef RLK_CPU_POLICY_KINDS_INL
#else
#define RLK_CPU_POLICY_KINDS_INL
#endif

#include <hwy/contrib/math/math-inl.h>

#include "core/cpu/policy/estimates-inl.hpp"
#include "core/cpu/policy/policy_batch.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

// What a kind looks at. log_ratio is clamped and of the token or of its sequence, as importance_ratio says.
template <class D, class V = hn::VFromD<D>>
struct PolicyInput {
  V logp, old_logp, advantage, log_ratio, ratio;
  hn::Mask<D> taken;  // by covariance: clip_cov, kl_cov
};

template <class D, class V = hn::VFromD<D>>
struct PolicyTerm {
  explicit PolicyTerm(D d)
      : value(hn::Zero(d)),
        d_logp(value),
        d_log_ratio(value),
        d_sequence(value),
        phi(value),
        clipped(hn::Lt(value, value)),
        clipped_lower(clipped),
        below(clipped),
        above(clipped) {}

  V value;
  V d_logp;       // explicitly
  V d_log_ratio;  // through the importance ratio
  V d_sequence;   // gmpo: through sum L / n
  V phi;
  hn::Mask<D> clipped, clipped_lower, below, above;
};

// log(x), -inf at 0; NaN for what is below 0, and for a NaN.
template <class D, class V = hn::VFromD<D>>
HWY_NOINLINE V log_of(D d, V x) {
  const V zero = hn::Zero(d), infinity = hn::Inf(d);
  const auto is_usual = hn::And(hn::Gt(x, zero), hn::Lt(x, infinity));
  const V usual = hn::Log(d, hn::IfThenElse(is_usual, x, hn::Set(d, 1.0)));
  const V unusual =
      hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), hn::IfThenElse(hn::Eq(x, infinity), x, hn::NaN(d)));
  return hn::IfThenElse(is_usual, usual, unusual);
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE void mark_bounds(D d, V advantage, V x, double low, double high, PolicyTerm<D>& term) {
  const V zero = hn::Zero(d);
  term.below = hn::And(hn::Lt(x, hn::Set(d, low)), hn::Lt(advantage, zero));
  term.above = hn::And(hn::Gt(x, hn::Set(d, high)), hn::Gt(advantage, zero));
}

// The ratio as a factor of the advantage: an advantage of 0 leaves nothing of one that overflows.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V ratio_of_advantage(D d, const PolicyInput<D>& token) {
  const auto overflows = hn::Eq(token.ratio, hn::Inf(d));
  return hn::IfThenZeroElse(hn::And(hn::Eq(token.advantage, hn::Zero(d)), overflows), token.ratio);
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> ppo(D d, const PolicyBatch& batch, const PolicyInput<D>& token) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const PolicyRules& rules = batch.rules;
  PolicyTerm<D> term(d);
  const V half = hn::Set(d, 0.5), zero = hn::Zero(d), minus_a = hn::Neg(token.advantage);
  const V ratio = ratio_of_advantage(d, token);
  mark_bounds(d, token.advantage, ratio, rules.ratio_low, rules.ratio_high, term);
  const V loss1 = hn::Mul(minus_a, at_most(d, rules.delta, ratio));
  const V loss2 = hn::Mul(minus_a, clamped(d, ratio, rules.ratio_low, rules.ratio_high));
  term.clipped = hn::Gt(loss2, loss1);
  term.value = at_least(loss2, loss1);
  // The derivative of a ratio by the log ratio is the ratio itself.
  const V slope1 = clamped_slope(d, ratio, ratio, -kInfinity, rules.delta, rules.at_bound);
  const V slope2 = clamped_slope(d, ratio, ratio, rules.ratio_low, rules.ratio_high, rules.at_bound);
  const V slope = hn::IfThenElse(hn::Eq(loss1, loss2), hn::Mul(half, hn::Add(slope1, slope2)),
                                 hn::IfThenElse(term.clipped, slope2, slope1));
  term.d_log_ratio = hn::Mul(minus_a, slope);
  if (!rules.has_dual_clip) return term;

  const V loss3 = hn::Mul(hn::Set(d, batch.params.dual_clip), minus_a);
  const auto is_negative = hn::Lt(token.advantage, zero);
  const auto ties = hn::And(is_negative, hn::Eq(term.value, loss3));
  term.d_log_ratio = hn::IfThenElse(ties, hn::Mul(half, term.d_log_ratio), term.d_log_ratio);
  term.clipped_lower = hn::And(is_negative, hn::Gt(term.value, loss3));
  term.value = hn::IfThenElse(term.clipped_lower, loss3, term.value);
  term.d_log_ratio = hn::IfThenZeroElse(term.clipped_lower, term.d_log_ratio);
  return term;
}

template <class D>
HWY_INLINE PolicyTerm<D> clip_cov(D d, const PolicyBatch& batch, const PolicyInput<D>& token) {
  PolicyTerm<D> term = ppo(d, batch, token);
  term.value = hn::IfThenZeroElse(token.taken, term.value);
  term.d_log_ratio = hn::IfThenZeroElse(token.taken, term.d_log_ratio);
  term.clipped = token.taken;
  return term;
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> kl_cov(D d, const PolicyBatch& batch, const PolicyInput<D>& token) {
  PolicyTerm<D> term(d);
  const V x = hn::Sub(token.logp, token.old_logp), coefficient = hn::Set(d, batch.params.cov_coefficient);
  term.value = term.d_log_ratio = hn::Neg(hn::Mul(ratio_of_advantage(d, token), token.advantage));
  term.clipped = token.taken;
  const auto changed = hn::And(token.taken, hn::Gt(hn::Abs(x), hn::Zero(d)));
  term.value = hn::IfThenElse(token.taken, hn::MulAdd(coefficient, hn::Abs(x), term.value), term.value);
  term.d_logp = hn::IfThenElseZero(changed, hn::CopySign(coefficient, x));
  return term;
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> weighted_logp(D d, const PolicyInput<D>& token, V weight) {
  PolicyTerm<D> term(d);
  term.d_logp = hn::Neg(times(d, weight, token.advantage));
  term.value = times(d, term.d_logp, token.logp);
  return term;
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> cispo(D d, const PolicyBatch& batch, const PolicyInput<D>& token) {
  const PolicyRules& rules = batch.rules;
  const V weight = clamped(d, token.ratio, rules.ratio_low, rules.ratio_high);
  PolicyTerm<D> term = weighted_logp(d, token, weight);
  term.clipped = hn::Not(hn::Eq(weight, token.ratio));  // other than Ne, also where it is a NaN
  mark_bounds(d, token.advantage, token.ratio, rules.ratio_low, rules.ratio_high, term);
  return term;
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> sapo(D d, const PolicyBatch& batch, const PolicyInput<D>& token) {
  PolicyTerm<D> term(d);
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0), minus_four = hn::Set(d, -4.0);
  const V tau = hn::IfThenElse(hn::Gt(token.advantage, zero), hn::Set(d, batch.params.sapo_tau_positive),
                               hn::Set(d, batch.params.sapo_tau_negative));
  const V at = hn::Mul(tau, hn::Sub(token.ratio, one));
  const V gate = sigmoid(d, at), rest = sigmoid(d, hn::Neg(at));  // 1 - gate without cancellation
  term.value = hn::Mul(hn::Mul(hn::Div(minus_four, tau), gate), token.advantage);
  // A saturated gate is flat, also where the ratio overflows.
  const V slope = hn::Mul(hn::Mul(hn::Mul(minus_four, hn::Mul(gate, rest)), token.ratio), token.advantage);
  term.d_log_ratio = hn::IfThenZeroElse(hn::Eq(rest, zero), slope);
  return term;
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> vespo(D d, const PolicySequence& own, const PolicyInput<D>& token) {
  const V phi =
      hn::IfThenElse(hn::Ge(token.advantage, hn::Zero(d)), hn::Set(d, own.phi_positive), hn::Set(d, own.phi_negative));
  PolicyTerm<D> term = weighted_logp(d, token, phi);
  term.phi = phi;
  return term;
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> gmpo(D d, const PolicyBatch& batch, const PolicySequence& own, const PolicyInput<D>& token) {
  PolicyTerm<D> term(d);
  const double low = -batch.params.clip_low, high = batch.params.clip_high;
  term.value = term.d_sequence = hn::Set(d, own.geometric);
  mark_bounds(d, token.advantage, token.log_ratio, low, high, term);
  const auto differs = hn::Or(hn::Lt(token.log_ratio, hn::Set(d, low)), hn::Gt(token.log_ratio, hn::Set(d, high)));
  term.clipped = hn::And(differs, hn::Gt(token.advantage, hn::Zero(d)));
  term.clipped_lower = hn::And(differs, hn::Lt(token.advantage, hn::Zero(d)));
  return term;
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> dro(D d, const PolicyBatch& batch, const PolicyInput<D>& token) {
  PolicyTerm<D> term(d);
  const V x = hn::Sub(token.logp, token.old_logp), beta = hn::Set(d, batch.params.dro_beta);
  const V square = hn::Mul(hn::Mul(hn::Mul(beta, hn::Set(d, 0.5)), x), x);
  term.value = hn::Sub(square, times(d, token.logp, token.advantage));
  term.d_logp = hn::Sub(hn::Mul(beta, x), token.advantage);
  return term;
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE PolicyTerm<D> dppo(D d, const PolicyBatch& batch, const PolicyInput<D>& token) {
  const V clip_low = hn::Set(d, batch.params.clip_low), clip_high = hn::Set(d, batch.params.clip_high);
  const V p = exp(d, token.logp), q = exp(d, token.old_logp);
  auto high_valid = hn::Le(hn::Sub(p, q), clip_high), low_valid = hn::Ge(hn::Sub(p, q), hn::Neg(clip_low));
  if (batch.params.kind == Kind::dppo_kl) {
    const V one = hn::Set(d, 1.0), tiny = hn::Set(d, 1e-8), rest_p = hn::Sub(one, p), rest_q = hn::Sub(one, q);
    const V log = log_of(d, hn::Div(hn::Add(rest_q, tiny), hn::Add(rest_p, tiny)));
    const V kl = hn::MulAdd(q, hn::Sub(token.old_logp, token.logp), hn::Mul(rest_q, log));
    high_valid = hn::Or(hn::Le(kl, clip_high), hn::Le(p, q));
    low_valid = hn::Or(hn::Le(kl, clip_low), hn::Ge(p, q));
  }
  const auto is_positive = hn::Gt(token.advantage, hn::Zero(d));
  const auto is_number = hn::Not(hn::Or(hn::IsNaN(token.advantage), hn::Or(hn::IsNaN(p), hn::IsNaN(q))));
  const auto valid = hn::Or(hn::And(is_positive, high_valid), hn::AndNot(is_positive, low_valid));

  const V cap = hn::Set(d, batch.rules.delta);
  PolicyTerm<D> term = weighted_logp(d, token, at_most(d, batch.rules.delta, token.ratio));
  term.clipped = hn::AndNot(valid, is_number);  // what is no number the loss is to show
  term.clipped_lower = hn::AndNot(term.clipped, hn::Gt(token.ratio, cap));
  term.value = hn::IfThenZeroElse(term.clipped, term.value);
  term.d_logp = hn::IfThenZeroElse(term.clipped, term.d_logp);
  return term;
}

template <class D>
HWY_INLINE PolicyTerm<D> policy_term(D d, const PolicyBatch& batch, const PolicySequence& own,
                                     const PolicyInput<D>& token) {
  switch (batch.params.kind) {
    case Kind::ppo:
      return ppo(d, batch, token);
    case Kind::cispo:
      return cispo(d, batch, token);
    case Kind::sapo:
      return sapo(d, batch, token);
    case Kind::vespo:
      return vespo(d, own, token);
    case Kind::gmpo:
      return gmpo(d, batch, own, token);
    case Kind::gpg:
      return weighted_logp(d, token, hn::Set(d, 1.0));
    case Kind::dro:
      return dro(d, batch, token);
    case Kind::dppo_tv:
    case Kind::dppo_kl:
      return dppo(d, batch, token);
    case Kind::clip_cov:
      return clip_cov(d, batch, token);
    case Kind::kl_cov:
      return kl_cov(d, batch, token);
  }
  return PolicyTerm<D>(d);
}

template <class V>
struct Slope {
  V value, slope;
};
// gmpo: the clipped log ratio of a token, and its derivative.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE Slope<V> geometric_term(D d, const PolicyBatch& batch, V advantage, V log_ratio) {
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0);
  const V low = hn::Set(d, -batch.params.clip_low), high = hn::Set(d, batch.params.clip_high);
  const auto above = hn::And(hn::Gt(advantage, zero), hn::Gt(log_ratio, high));
  const auto below = hn::And(hn::Lt(advantage, zero), hn::Lt(log_ratio, low));
  const auto is_flat = hn::Or(hn::Or(above, below), hn::Eq(advantage, zero));
  // Beyond the other bound the log ratio itself is chosen; inside and at the bounds it ties with its clamp.
  const auto tie = hn::And(hn::Ge(log_ratio, low), hn::Le(log_ratio, high));
  const V passes = hn::IfThenElse(tie, clamp_gradient(d, log_ratio, low, high, batch.rules.at_bound), one);
  const V chosen = hn::IfThenElse(above, high, hn::IfThenElse(below, low, log_ratio));
  // The sign of the advantage is a factor: of 0 times NaN comes NaN.
  return {hn::IfThenElse(hn::Eq(advantage, zero), hn::Mul(chosen, zero), chosen),
          hn::IfThenZeroElse(is_flat, hn::Mul(hn::Set(d, 0.5), hn::Add(one, passes)))};
}

template <class V>
struct KlTerm {
  V value, d_logp, d_log_ratio;
};
// old_logp weighs the gradient of k2_weighted; ratio is that of kl_bias_correction.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE KlTerm<V> kl_term(D d, const PolicyBatch& batch, V logp, V old_logp, V ref_logp, V ratio) {
  const PolicyParams& params = batch.params;
  const double d_bound = batch.rules.d_bound, bound = batch.rules.kl_bound, at_bound = batch.rules.at_bound;
  const V difference = hn::Sub(ref_logp, logp), zero = hn::Zero(d);
  const auto estimate = kl_estimate(d, params.kl_kind, clamped(d, difference, -d_bound, d_bound));
  KlTerm<V> term = {estimate.value, clamped_slope(d, hn::Neg(estimate.slope), difference, -d_bound, d_bound, at_bound),
                    zero};
  if (params.kl_bias_correction != KlBiasCorrection::off) {
    term.value = times(d, term.value, ratio);
    term = {term.value, times(d, term.d_logp, ratio), term.value};
  }
  term.d_logp = clamped_slope(d, term.d_logp, term.value, -bound, bound, at_bound);
  term.d_log_ratio = clamped_slope(d, term.d_log_ratio, term.value, -bound, bound, at_bound);
  term.value = clamped(d, term.value, -bound, bound);
  if (params.kl_gradient == KlGradient::k2) term = {term.value, hn::Neg(difference), zero};
  if (params.kl_gradient == KlGradient::k2_weighted) {
    const V weight = k2_weight(d, hn::Sub(logp, old_logp), params.kl_gradient_weight_max);
    term = {term.value, hn::Neg(times(d, difference, weight)), zero};
  }
  return term;
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
