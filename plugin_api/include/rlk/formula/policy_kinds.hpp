// The policy loss and the KL of a token with their derivatives, in fp64. A new kind of loss is a function here and a
// line in the switch.
//
// At kinks: the selected branch of min and max, half of each at a tie; what a clamp passes at its bounds is asked for.
#if defined(RLK_FORMULA_POLICY_KINDS) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_POLICY_KINDS
#undef RLK_FORMULA_POLICY_KINDS
#else
#define RLK_FORMULA_POLICY_KINDS
#endif

#include <rlk/formula/estimates.hpp>
#include <rlk/formula/policy_rules.hpp>

RLK_FORMULA_BEGIN

template <class V>
using MaskOf = decltype(Eq(*static_cast<V*>(nullptr), *static_cast<V*>(nullptr)));

// What a kind looks at. log_ratio is clamped and of the token or of its sequence, as importance_ratio says.
template <class V>
struct PolicyInput {
  V logp, old_logp, advantage, log_ratio, ratio;
  MaskOf<V> taken;  // by covariance: clip_cov, kl_cov
};

template <class V>
struct PolicyTerm {
  V value;
  V d_logp;       // explicitly
  V d_log_ratio;  // through the importance ratio
  V d_sequence;   // gmpo: through sum L / n
  V phi;
  MaskOf<V> clipped, clipped_lower, below, above;
};
template <class D>
RLK_FORMULA PolicyTerm<VFromD<D>> no_term(D d) {
  const auto zero = Zero(d);
  const auto none = Lt(zero, zero);
  return {zero, zero, zero, zero, zero, none, none, none, none};
}

template <class D, class V>
RLK_FORMULA void mark_bounds(D d, V advantage, V x, double low, double high, PolicyTerm<V>& term) {
  const V zero = Zero(d);
  term.below = And(Lt(x, number(d, low)), Lt(advantage, zero));
  term.above = And(Gt(x, number(d, high)), Gt(advantage, zero));
}

// The ratio as a factor of the advantage: an advantage of 0 leaves nothing of one that overflows.
template <class D, class V>
RLK_FORMULA V ratio_of_advantage(D d, const PolicyInput<V>& token) {
  const auto overflows = Eq(token.ratio, Inf(d));
  return IfThenZeroElse(And(Eq(token.advantage, Zero(d)), overflows), token.ratio);
}

template <class D, class V>
RLK_FORMULA PolicyTerm<V> ppo(D d, const PolicyRules& rules, const PolicyInput<V>& token) {
  PolicyTerm<V> term = no_term(d);
  const V half = number(d, 0.5), zero = Zero(d), minus_a = Neg(token.advantage);
  const V ratio = ratio_of_advantage(d, token);
  mark_bounds(d, token.advantage, ratio, rules.ratio_low, rules.ratio_high, term);
  const V loss1 = Mul(minus_a, at_most(d, rules.delta, ratio));
  const V loss2 = Mul(minus_a, clamped(d, ratio, rules.ratio_low, rules.ratio_high));
  term.clipped = Gt(loss2, loss1);
  term.value = at_least(loss2, loss1);
  // The derivative of a ratio by the log ratio is the ratio itself.
  const V slope1 = clamped_slope(d, ratio, ratio, -__builtin_huge_val(), rules.delta, rules.at_bound);
  const V slope2 = clamped_slope(d, ratio, ratio, rules.ratio_low, rules.ratio_high, rules.at_bound);
  const V slope =
      IfThenElse(Eq(loss1, loss2), Mul(half, Add(slope1, slope2)), IfThenElse(term.clipped, slope2, slope1));
  term.d_log_ratio = Mul(minus_a, slope);
  if (!(rules.dual_clip > 0)) return term;

  const V loss3 = Mul(number(d, rules.dual_clip), minus_a);
  const auto is_negative = Lt(token.advantage, zero);
  const auto ties = And(is_negative, Eq(term.value, loss3));
  term.d_log_ratio = IfThenElse(ties, Mul(half, term.d_log_ratio), term.d_log_ratio);
  term.clipped_lower = And(is_negative, Gt(term.value, loss3));
  term.value = IfThenElse(term.clipped_lower, loss3, term.value);
  term.d_log_ratio = IfThenZeroElse(term.clipped_lower, term.d_log_ratio);
  return term;
}

template <class D, class V>
RLK_FORMULA PolicyTerm<V> clip_cov(D d, const PolicyRules& rules, const PolicyInput<V>& token) {
  PolicyTerm<V> term = ppo(d, rules, token);
  term.value = IfThenZeroElse(token.taken, term.value);
  term.d_log_ratio = IfThenZeroElse(token.taken, term.d_log_ratio);
  term.clipped = token.taken;
  return term;
}

template <class D, class V>
RLK_FORMULA PolicyTerm<V> kl_cov(D d, const PolicyRules& rules, const PolicyInput<V>& token) {
  PolicyTerm<V> term = no_term(d);
  const V x = Sub(token.logp, token.old_logp), coefficient = number(d, rules.cov_coefficient);
  term.value = term.d_log_ratio = Neg(Mul(ratio_of_advantage(d, token), token.advantage));
  term.clipped = token.taken;
  const auto changed = And(token.taken, Gt(Abs(x), Zero(d)));
  term.value = IfThenElse(token.taken, MulAdd(coefficient, Abs(x), term.value), term.value);
  term.d_logp = IfThenElseZero(changed, CopySign(coefficient, x));
  return term;
}

template <class D, class V>
RLK_FORMULA PolicyTerm<V> weighted_logp(D d, const PolicyInput<V>& token, V weight) {
  PolicyTerm<V> term = no_term(d);
  term.d_logp = Neg(times(d, weight, token.advantage));
  term.value = times(d, term.d_logp, token.logp);
  return term;
}

template <class D, class V>
RLK_FORMULA PolicyTerm<V> cispo(D d, const PolicyRules& rules, const PolicyInput<V>& token) {
  const V weight = clamped(d, token.ratio, rules.ratio_low, rules.ratio_high);
  PolicyTerm<V> term = weighted_logp(d, token, weight);
  term.clipped = Not(Eq(weight, token.ratio));  // other than Ne, also where it is a NaN
  mark_bounds(d, token.advantage, token.ratio, rules.ratio_low, rules.ratio_high, term);
  return term;
}

template <class D, class V>
RLK_FORMULA PolicyTerm<V> sapo(D d, const PolicyRules& rules, const PolicyInput<V>& token) {
  PolicyTerm<V> term = no_term(d);
  const V zero = Zero(d), one = number(d, 1.0), minus_four = number(d, -4.0);
  const V tau = IfThenElse(Gt(token.advantage, zero), number(d, rules.tau_positive), number(d, rules.tau_negative));
  const V at = Mul(tau, Sub(token.ratio, one));
  const V gate = sigmoid(d, at), rest = sigmoid(d, Neg(at));  // 1 - gate without cancellation
  term.value = Mul(Mul(Div(minus_four, tau), gate), token.advantage);
  // A saturated gate is flat, also where the ratio overflows.
  const V slope = Mul(Mul(Mul(minus_four, Mul(gate, rest)), token.ratio), token.advantage);
  term.d_log_ratio = IfThenZeroElse(Eq(rest, zero), slope);
  return term;
}

// Own: what tokens take from their sequence, a PolicySequence or the same in values.
template <class D, class Own, class V>
RLK_FORMULA PolicyTerm<V> vespo(D d, const Own& own, const PolicyInput<V>& token) {
  const V phi = IfThenElse(Ge(token.advantage, Zero(d)), number(d, own.phi_positive), number(d, own.phi_negative));
  PolicyTerm<V> term = weighted_logp(d, token, phi);
  term.phi = phi;
  return term;
}

template <class D, class Own, class V>
RLK_FORMULA PolicyTerm<V> gmpo(D d, const PolicyRules& rules, const Own& own, const PolicyInput<V>& token) {
  PolicyTerm<V> term = no_term(d);
  const double low = -rules.clip_low, high = rules.clip_high;
  term.value = term.d_sequence = number(d, own.geometric);
  mark_bounds(d, token.advantage, token.log_ratio, low, high, term);
  const auto differs = Or(Lt(token.log_ratio, number(d, low)), Gt(token.log_ratio, number(d, high)));
  term.clipped = And(differs, Gt(token.advantage, Zero(d)));
  term.clipped_lower = And(differs, Lt(token.advantage, Zero(d)));
  return term;
}

template <class D, class V>
RLK_FORMULA PolicyTerm<V> dro(D d, const PolicyRules& rules, const PolicyInput<V>& token) {
  PolicyTerm<V> term = no_term(d);
  const V x = Sub(token.logp, token.old_logp), beta = number(d, rules.dro_beta);
  const V square = Mul(Mul(Mul(beta, number(d, 0.5)), x), x);
  term.value = Sub(square, times(d, token.logp, token.advantage));
  term.d_logp = Sub(Mul(beta, x), token.advantage);
  return term;
}

template <class D, class V>
RLK_FORMULA PolicyTerm<V> dppo(D d, const PolicyRules& rules, const PolicyInput<V>& token) {
  const V clip_low = number(d, rules.clip_low), clip_high = number(d, rules.clip_high);
  const V p = exp(d, token.logp), q = exp(d, token.old_logp);
  auto high_valid = Le(Sub(p, q), clip_high), low_valid = Ge(Sub(p, q), Neg(clip_low));
  if (rules.kind == PolicyRules::Kind::dppo_kl) {
    const V one = number(d, 1.0), tiny = number(d, 1e-8), rest_p = Sub(one, p), rest_q = Sub(one, q);
    const V log = log_of(d, Div(Add(rest_q, tiny), Add(rest_p, tiny)));
    const V kl = MulAdd(q, Sub(token.old_logp, token.logp), Mul(rest_q, log));
    high_valid = Or(Le(kl, clip_high), Le(p, q));
    low_valid = Or(Le(kl, clip_low), Ge(p, q));
  }
  const auto is_positive = Gt(token.advantage, Zero(d));
  const auto is_number = Not(Or(IsNaN(token.advantage), Or(IsNaN(p), IsNaN(q))));
  const auto valid = Or(And(is_positive, high_valid), AndNot(is_positive, low_valid));

  const V cap = number(d, rules.delta);
  PolicyTerm<V> term = weighted_logp(d, token, at_most(d, rules.delta, token.ratio));
  term.clipped = AndNot(valid, is_number);  // what is no number the loss is to show
  term.clipped_lower = AndNot(term.clipped, Gt(token.ratio, cap));
  term.value = IfThenZeroElse(term.clipped, term.value);
  term.d_logp = IfThenZeroElse(term.clipped, term.d_logp);
  return term;
}

template <class D, class Own, class V>
RLK_FORMULA PolicyTerm<V> policy_term(D d, const PolicyRules& rules, const Own& own, const PolicyInput<V>& token) {
  using Kind = PolicyRules::Kind;
  switch (rules.kind) {
    case Kind::ppo:
      return ppo(d, rules, token);
    case Kind::cispo:
      return cispo(d, rules, token);
    case Kind::sapo:
      return sapo(d, rules, token);
    case Kind::vespo:
      return vespo(d, own, token);
    case Kind::gmpo:
      return gmpo(d, rules, own, token);
    case Kind::gpg:
      return weighted_logp(d, token, number(d, 1.0));
    case Kind::dro:
      return dro(d, rules, token);
    case Kind::dppo_tv:
    case Kind::dppo_kl:
      return dppo(d, rules, token);
    case Kind::clip_cov:
      return clip_cov(d, rules, token);
    case Kind::kl_cov:
      return kl_cov(d, rules, token);
  }
  return no_term(d);
}

template <class V>
struct Slope {
  V value, slope;
};
// gmpo: the clipped log ratio of a token, and its derivative.
template <class D, class V>
RLK_FORMULA Slope<V> geometric_term(D d, const PolicyRules& rules, V advantage, V log_ratio) {
  const V zero = Zero(d), one = number(d, 1.0);
  const V low = number(d, -rules.clip_low), high = number(d, rules.clip_high);
  const auto above = And(Gt(advantage, zero), Gt(log_ratio, high));
  const auto below = And(Lt(advantage, zero), Lt(log_ratio, low));
  const auto is_flat = Or(Or(above, below), Eq(advantage, zero));
  // Beyond the other bound the log ratio itself is chosen; inside and at the bounds it ties with its clamp.
  const auto tie = And(Ge(log_ratio, low), Le(log_ratio, high));
  const V passes = IfThenElse(tie, clamp_gradient(d, log_ratio, low, high, rules.at_bound), one);
  const V chosen = IfThenElse(above, high, IfThenElse(below, low, log_ratio));
  // The sign of the advantage is a factor: of 0 times NaN comes NaN.
  return {IfThenElse(Eq(advantage, zero), Mul(chosen, zero), chosen),
          IfThenZeroElse(is_flat, Mul(number(d, 0.5), Add(one, passes)))};
}

// old_logp weighs the gradient of k2_weighted; ratio is that of kl_bias_correction. The value, and its derivatives by
// logp and by the log ratio.
template <class D, class V>
RLK_FORMULA Three<V> kl_term(D d, const PolicyRules& rules, V logp, V old_logp, V ref_logp, V ratio) {
  const double d_bound = rules.d_bound, bound = rules.kl_bound, at_bound = rules.at_bound;
  const V difference = Sub(ref_logp, logp), zero = Zero(d);
  const auto estimate = kl_estimate(d, rules.kl_kind, clamped(d, difference, -d_bound, d_bound));
  V value = estimate.value, d_log_ratio = zero;
  V d_logp = clamped_slope(d, Neg(estimate.slope), difference, -d_bound, d_bound, at_bound);
  if (rules.kl_bias != PolicyRules::KlBias::off) {
    d_log_ratio = value = times(d, value, ratio);
    d_logp = times(d, d_logp, ratio);
  }
  d_logp = clamped_slope(d, d_logp, value, -bound, bound, at_bound);
  d_log_ratio = clamped_slope(d, d_log_ratio, value, -bound, bound, at_bound);
  value = clamped(d, value, -bound, bound);
  if (rules.kl_gradient == PolicyRules::KlGradient::k2) return {value, Neg(difference), zero};
  if (rules.kl_gradient == PolicyRules::KlGradient::k2_weighted) {
    return {value, Neg(times(d, difference, k2_weight(d, Sub(logp, old_logp), rules.k2_weight_max))), zero};
  }
  return {value, d_logp, d_log_ratio};
}

RLK_FORMULA_END
#endif
