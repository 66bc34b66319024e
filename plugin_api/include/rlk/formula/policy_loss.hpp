// The loss of a token and its derivatives, in fp64: corrections, kinds, KL and entropy put together.
#if defined(RLK_FORMULA_POLICY_LOSS) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_POLICY_LOSS
#undef RLK_FORMULA_POLICY_LOSS
#else
#define RLK_FORMULA_POLICY_LOSS
#endif

#include <rlk/formula/policy_kinds.hpp>

RLK_FORMULA_BEGIN

template <class V>
struct PolicyToken {
  V logp, old_logp, advantage, mask, ref_logp, rollout_logp, entropy, weight, grad_per_token;
};

// Between trainer and sampler: the log ratio of the old or the current policy to the sampler, and of the gate the
// divergence between the probabilities, 0 where the ratio itself is the gate. Nothing here has a gradient.
template <class V>
struct RolloutToken {
  V r, divergence;
};
template <class D, class V>
RLK_FORMULA RolloutToken<V> rollout_of(D d, const PolicyRules& rules, const PolicyToken<V>& token) {
  const V trained = rules.of_current ? token.logp : token.old_logp;
  const V one = number(d, 1.0);
  RolloutToken<V> rollout{Sub(trained, token.rollout_logp), Zero(d)};
  if (rules.gate != PolicyRules::Gate::ratio) {
    const V p = clamped(d, exp(d, token.rollout_logp), 1e-6, 1 - 1e-6);
    const V q = clamped(d, exp(d, trained), 1e-6, 1 - 1e-6);
    if (rules.gate == PolicyRules::Gate::tv) {
      rollout.divergence = Abs(Sub(p, q));
    } else {
      const V rest_p = Sub(one, p), rest_q = Sub(one, q);
      rollout.divergence = MulAdd(p, log_of(d, Div(p, q)), Mul(rest_p, log_of(d, Div(rest_p, rest_q))));
    }
  }
  if (rules.missing_is_one) {
    const auto is_missing = IsNaN(token.rollout_logp);
    rollout.r = IfThenZeroElse(is_missing, rollout.r);
    rollout.divergence = IfThenZeroElse(is_missing, rollout.divergence);
  }
  return rollout;
}

// k1, k2, k3 of the log ratio to the sampler.
template <class D, class V>
RLK_FORMULA Three<V> rollout_estimates(D d, const PolicyRules& rules, V r) {
  const V c = clamped(d, r, -rules.r_bound, rules.r_bound);
  return {Neg(c), Mul(number(d, 0.5), Mul(c, c)), Sub(exp_minus_one(d, c), c)};
}
// A NaN passes no test.
template <class D, class V>
RLK_FORMULA MaskOf<V> is_kept(D d, const RejectionBounds& bounds, const Three<V>& k) {
  auto kept = Eq(Zero(d), Zero(d));
  if (bounds.has_k1_low) kept = And(kept, Ge(k.first, number(d, bounds.k1_low)));
  if (bounds.has_k1_high) kept = And(kept, Le(k.first, number(d, bounds.k1_high)));
  if (bounds.has_k2_high) kept = And(kept, Le(k.second, number(d, bounds.k2_high)));
  if (bounds.has_k3_high) kept = And(kept, Le(k.third, number(d, bounds.k3_high)));
  return kept;
}

// The importance weight before its division.
template <class D, class Own, class V>
RLK_FORMULA V rollout_weight(D d, const PolicyRules& rules, const Own& own, const RolloutToken<V>& rollout) {
  using RolloutIs = PolicyRules::RolloutIs;
  const double low = rules.rollout_low, high = rules.rollout_high;
  if (rules.rollout_is == RolloutIs::none) return number(d, 1.0);
  if (rules.has_sequence_weights()) return number(d, own.weight);
  const V w = exp(d, clamped(d, rollout.r, -rules.r_bound, rules.r_bound));
  if (rules.rollout_is == RolloutIs::geometric_mask) {
    if (!own.keeps_weights) return Zero(d);
    return rules.truncates_gated ? clamped(d, w, low, high) : w;
  }
  if (rules.rollout_is == RolloutIs::token_truncate) return clamped(d, w, low, high);
  const V gate = rules.gate == PolicyRules::Gate::ratio ? w : rollout.divergence;
  return IfThenElseZero(And(Ge(gate, number(d, low)), Le(gate, number(d, high))), w);
}

// What is asked first of tokens, `given` of which are there.
template <class V>
struct PolicyCounts {
  V raw_weight, weight;  // importance weights, before and after their division
  MaskOf<V> unmasked, active, selected;
};
template <class D, class Own, class V>
RLK_FORMULA PolicyCounts<V> count_token(D d, const PolicyRules& rules, double weight_divisor, const Own& own,
                                        const PolicyToken<V>& token, MaskOf<V> given) {
  const V zero = Zero(d), one = number(d, 1.0);
  PolicyCounts<V> counts{one, one, And(given, Ne(token.mask, zero)), given, given};
  counts.active = own.rejected ? Lt(zero, zero) : counts.unmasked;
  if (rules.has_rollout) {
    const RolloutToken<V> rollout = rollout_of(d, rules, token);
    counts.weight = counts.raw_weight = rollout_weight(d, rules, own, rollout);
    if (weight_divisor != 1) counts.weight = Div(counts.weight, number(d, weight_divisor));
    if (rules.rejects_tokens) {
      counts.active = And(counts.active, is_kept(d, rules.token, rollout_estimates(d, rules, rollout.r)));
    }
  }
  counts.selected = counts.active;
  if (rules.selects) counts.selected = And(counts.active, Ge(token.entropy, number(d, rules.least_entropy)));
  return counts;
}

// What a clamp of the token's own log ratio passes.
template <class D, class V>
RLK_FORMULA V own_slope(D d, const PolicyRules& rules, const PolicyToken<V>& token) {
  if (!rules.clamps_log_ratio) return number(d, 1.0);
  return clamp_gradient(d, Sub(token.logp, token.old_logp), number(d, rules.x_low), number(d, rules.x_high),
                        rules.at_bound);
}

template <class V>
struct PolicyLoss {
  V value;
  V d_own;       // by the token's own logp, where no sequence is between
  V d_sequence;  // by the sequence's quantity: see share_of
  V kl, ratio;
  PolicyTerm<V> term;
};

// The log ratio that a kind looks at: clamped, the token's own or that of its sequence.
template <class D, class Own, class V>
RLK_FORMULA V log_ratio_of(D d, const PolicyRules& rules, const Own& own, const PolicyToken<V>& token) {
  const bool of_token = rules.importance_ratio == PolicyRules::Ratio::token;
  return of_token ? clamped(d, Sub(token.logp, token.old_logp), rules.x_low, rules.x_high) : number(d, own.log_ratio);
}

// A loss or a slope with its weights, of the tokens that keep it. A correction of 0 leaves nothing of a ratio that
// overflows.
template <class D, class V>
RLK_FORMULA V weighed(D d, const PolicyRules& rules, MaskOf<V> keeps, V factor, V of) {
  return IfThenElseZero(keeps, rules.has_rollout ? times(d, factor, of) : Mul(factor, of));
}

// Of active tokens; what the others get is anything. log_ratio: log_ratio_of, whose exponential is ratio. taken: by
// covariance.
template <class D, class Own, class V>
RLK_FORMULA PolicyLoss<V> loss_of(D d, const PolicyRules& rules, const Own& own, const PolicyToken<V>& token,
                                  const PolicyCounts<V>& counts, V log_ratio, V own_ratio, MaskOf<V> taken) {
  using Kind = PolicyRules::Kind;
  const V zero = Zero(d);
  const bool of_token = rules.importance_ratio == PolicyRules::Ratio::token;
  const PolicyInput<V> input = {token.logp, token.old_logp, token.advantage, log_ratio, own_ratio, taken};
  PolicyLoss<V> loss{zero, zero, zero, zero, input.ratio, policy_term(d, rules, own, input)};

  // Selected, not multiplied by 0: a dropped token must not turn an overflow into NaN.
  auto keeps = counts.selected;  // the values: of a choice between two places g++ would keep both in memory
  if (rules.kind == Kind::gmpo && rules.means_selected) keeps = counts.active;
  if (rules.opsm != PolicyRules::Opsm::off && own.off_policy > rules.opsm_threshold) {
    keeps = AndNot(Lt(token.advantage, zero), keeps);
  }
  V factor = token.weight;
  if (rules.kind == Kind::gmpo) {
    factor = Mul(factor, number(d, own.geometric_weight));
  } else if (rules.kind != Kind::vespo) {
    factor = Mul(factor, counts.weight);
  }
  if (rules.has_weight) keeps = AndNot(Eq(token.weight, zero), keeps);
  loss.value = weighed(d, rules, keeps, factor, loss.term.value);
  loss.d_sequence = weighed(d, rules, keeps, factor, loss.term.d_sequence);
  V d_logp = weighed(d, rules, keeps, factor, loss.term.d_logp);
  V d_log_ratio = weighed(d, rules, keeps, factor, loss.term.d_log_ratio);
  if (rules.has_reference) {
    const bool of_own = rules.kl_bias == PolicyRules::KlBias::token;
    V ratio = input.ratio;
    if (of_own && !of_token) {
      ratio = exp(d, clamped(d, Sub(token.logp, token.old_logp), rules.x_low, rules.x_high));
    }
    const auto kl = kl_term(d, rules, token.logp, token.old_logp, token.ref_logp, ratio);
    loss.kl = kl.first;
    if (rules.beta != 0) {
      const V beta = number(d, rules.beta);
      loss.value = MulAdd(beta, kl.first, loss.value);
      d_logp = MulAdd(beta, kl.second, d_logp);
      if (of_own) {
        d_logp = MulAdd(beta, Mul(kl.third, own_slope(d, rules, token)), d_logp);
      } else {
        d_log_ratio = MulAdd(beta, kl.third, d_log_ratio);
      }
    }
  }
  if (rules.entropy_coefficient != 0 && !rules.has_own_bonus) {
    const V bonus = Mul(number(d, rules.entropy_coefficient), token.entropy);
    loss.value = Sub(loss.value, IfThenElseZero(counts.selected, bonus));
  }
  loss.d_own = d_logp;
  if (rules.shares && rules.kind != Kind::gmpo) {
    loss.d_sequence = Add(loss.d_sequence, d_log_ratio);
  } else {
    const V slope = of_token ? own_slope(d, rules, token) : number(d, own.log_ratio_slope);
    loss.d_own = Add(loss.d_own, Mul(d_log_ratio, slope));
  }
  return loss;
}
template <class D, class Own, class V>
RLK_FORMULA PolicyLoss<V> loss_of(D d, const PolicyRules& rules, const Own& own, const PolicyToken<V>& token,
                                  const PolicyCounts<V>& counts, MaskOf<V> taken) {
  const V log_ratio = log_ratio_of(d, rules, own, token);
  return loss_of(d, rules, own, token, counts, log_ratio, exp(d, log_ratio), taken);
}

// The derivative of the sequence's quantity by the token's logp.
template <class D, class Own, class V>
RLK_FORMULA V share_of(D d, const PolicyRules& rules, const Own& own, const PolicyToken<V>& token,
                       const PolicyCounts<V>& counts) {
  if (rules.importance_ratio == PolicyRules::Ratio::sequence)
    return Div(number(d, own.log_ratio_slope), number(d, own.active));
  if (rules.importance_ratio == PolicyRules::Ratio::sequence_sum) return number(d, own.log_ratio_slope);
  const V x = Sub(token.logp, token.old_logp);  // no slope where it is clamped
  const V slope = Mul(geometric_term(d, rules, token.advantage, x).slope, own_slope(d, rules, token));
  return IfThenElseZero(rules.means_selected ? counts.selected : counts.active, Div(slope, number(d, own.meant)));
}

RLK_FORMULA_END
#endif
