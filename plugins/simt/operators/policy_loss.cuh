// The policy loss of a batch, its metrics, and its gradient: a pass for the losses, and one before it for each of what
// hangs on whole sequences and, in the gradient, on the number of tokens that a mask leaves.
#include "../skeleton/tokens.cuh"

#include "../skeleton/short_power.cuh"

#include <rlk/formula/policy_passes.hpp>

namespace rlk::formula {

template <class View>
RLK_FORMULA LossWeights weights_of_batch(const PolicyRules& rules, const View& view) {
  LossWeights weights = rules.weights;
  weights.tokens = view.template batch<PolicyTotals>().tokens;
  weights.sequences = view.template batch<PolicyTotals>().sequences;
  return weights;
}

// The commonest batch: a plain one of nothing but clipped ratios. Its passes have little to do for a token.
inline bool is_brief(const PolicyRules& rules) {
  // For the host: is_no_bound is for the device alone where there is one.
  const auto is_bound = [](double bound) { return __builtin_fabs(bound) != __builtin_huge_val(); };
  return rules.is_plain && !rules.has_metrics && !rules.has_reference && !rules.clamps_log_ratio &&
         rules.delta == __builtin_huge_val() && is_bound(rules.ratio_low) && is_bound(rules.ratio_high) &&
         rules.ratio_low <= rules.ratio_high;
}
// Tells the compiler so, and the loop asks nothing at each token: without a dual clip it has one that clips nothing.
RLK_FORMULA PolicyState<true> brief_state(PolicyState<true> state) {
  state.rules.delta = __builtin_huge_val();
  const double dual_clip = state.rules.dual_clip;
  state.rules.dual_clip = dual_clip > 0 ? dual_clip : __builtin_huge_val();
  if (is_no_bound(state.rules.ratio_low) || is_no_bound(state.rules.ratio_high)) __builtin_unreachable();
  return state;
}
// What ppo() makes of a token of such a batch, to the bit, with fewer questions: a bound that the ratio has reached is
// what the clamp gives, and one that it has passed is not the ratio.
struct BriefTerm {
  double minus_a, ratio, loss, clipped_loss;
  bool is_at_bound, is_outside, is_clipped;

  RLK_FORMULA double value() const { return IfThenElse(is_clipped, clipped_loss, loss); }
  // By the log ratio. at_bound: of a ratio that is a bound, what both losses have of it together.
  RLK_FORMULA double slope(double at_bound) const {
    const double tied = IfThenElse(loss == clipped_loss, 0.5, 1.0);
    const double factor = IfThenElse(is_at_bound, IfThenElse(is_outside, tied, at_bound), 1.0);
    return IfThenZeroElse(is_outside & is_clipped, Mul(ratio, factor));
  }
};
// No question is left out for the answer to another: branches would take longer than all of them.
template <class D>
RLK_FORMULA BriefTerm brief_term(D d, const PolicyState<true>& state, const double* in) {
  const double advantage = Add(in[PolicyPlace::advantages], state.sequence_advantage);
  const double ratio = exp(d, Sub(in[PolicyPlace::logp], in[PolicyPlace::old_logp]));
  const double low = state.rules.ratio_low, high = state.rules.ratio_high;
  BriefTerm term{};
  term.minus_a = -advantage;
  term.ratio = IfThenZeroElse((advantage == 0) & (ratio == __builtin_huge_val()), ratio);
  const bool is_low = term.ratio <= low, is_high = term.ratio >= high;
  const double bounded = IfThenElse(is_low, low, IfThenElse(is_high, high, term.ratio));
  term.loss = Mul(term.minus_a, term.ratio);
  term.clipped_loss = Mul(term.minus_a, bounded);
  term.is_at_bound = is_low | is_high;
  term.is_outside = bounded != term.ratio;
  term.is_clipped = term.clipped_loss > term.loss;
  return term;
}
// The same in fp32, of tokens that leave no doubt: those whose ratio is not near a bound. Where the advantage is
// negative the ratio is clamped to [low, dual], elsewhere to at most high.
struct ShortRules {
  float low, high, dual;
  float advantage, of_loss;  // of the sequence
  bool is_sure;
};
RLK_FORMULA ShortRules short_rules(const PolicyState<true>& state) {
  const double dual = state.rules.dual_clip > 0 ? state.rules.dual_clip : __builtin_huge_val();
  const double low = at_most(Lane<double>(), dual, state.rules.ratio_low), size = Abs(state.of_loss);
  ShortRules rules{};
  rules.low = low < 0 ? 0 : static_cast<float>(low);
  rules.high = static_cast<float>(state.rules.ratio_high);
  rules.dual = static_cast<float>(dual);
  rules.advantage = static_cast<float>(state.sequence_advantage);
  rules.of_loss = static_cast<float>(state.of_loss);
  rules.is_sure = rules.advantage == state.sequence_advantage && ((size > 0x1p-60 && size < 0x1p20) || size == 0);
  return rules;
}
// No question is left out for the answer to another, as above.
struct ShortTerm {
  float value;  // minus the advantage, times a factor, times the clamped ratio
  bool is_inside, is_sure;
};
// Good to a few units: two in the ratio, half of one in each product.
RLK_FORMULA ShortTerm short_term(const ShortRules& rules, float minus_a, float factor, float logp, float old_logp) {
  const Two<float> x = short_difference(logp, old_logp);
  const float ratio = short_power(x.first, x.second).value(), doubt = Mul(ratio, 0x1p-19f);
  const float low = minus_a > 0 ? rules.low : -1, high = minus_a > 0 ? rules.dual : rules.high;
  const float bounded = ratio < low ? low : ratio > high ? high : ratio;
  ShortTerm term;
  term.value = Mul(Mul(minus_a, factor), bounded);
  term.is_inside = bounded == ratio;
  const bool is_apart_below = Abs(Sub(ratio, low)) > doubt, is_apart_above = Abs(Sub(ratio, high)) > doubt;
  const bool is_small = Abs(x.first) < 16, is_finite = Abs(term.value) < INFINITY;
  term.is_sure = is_apart_below & is_apart_above & is_small & is_finite;
  return term;
}
constexpr unsigned kBriefBytes = 1u << PolicyPlace::mask;
constexpr unsigned kBriefUses =
    1u << PolicyPlace::logp | 1u << PolicyPlace::old_logp | 1u << PolicyPlace::advantages | kBriefBytes;

// The losses. Sums of active tokens are metrics in their order, but that the loss comes second.
template <bool plain, bool metrics>
struct PolicyLosses : PolicyPass {
  enum {
    kActive,
    kLoss,
    kKl,
    kMinusX,
    kClipped,
    kClippedLower,
    kBelow,
    kAbove,
    kRatio,
    kEntropySum,
    kPhi,
    kWeightSum,
    kSelected,
    kBonus,
    kUnmasked,
    kRawWeight,
    kRawSquare,
    kAll,
    kOnceWeight = kAll,
    kOnce,
    kMost
  };
  static constexpr bool kFew = plain && !metrics;
  static constexpr int kOuts = 1, kSums = kFew ? kLoss + 1 : kAll, kLargest = kSums;
  static constexpr int kSequences = kFew ? kSums : kMost, kTotals = kSequences + 1;
  static constexpr int kStep = plain && !metrics ? 4 : 2, kMetricMeans = 12;
  static constexpr bool kAgain = true;

  static bool is_wanted(const PolicyRules& rules) {
    return rules.is_plain == plain && (!plain || rules.has_metrics == metrics) && !is_brief(rules);
  }
  template <class View>
  static RLK_FORMULA PolicyState<plain> begin(const PolicyRules& rules, const View& view, int64_t b) {
    return policy_state<plain>(rules, view, b);
  }
  static RLK_FORMULA void token(const PolicyState<plain>& state, const double* in, double* sums, double* out) {
    const Lane<double> d;
    const auto token = policy_token(in, state.sequence_advantage);
    const auto counts = count_token(d, state.rules, state.weight_divisor, state.own, token, true);
    if (kSums == kAll && counts.unmasked) {
      add_to(sums[kUnmasked], 1);
      add_to(sums[kRawWeight], counts.raw_weight);
      add_to(sums[kRawSquare], Mul(counts.raw_weight, counts.raw_weight));
    }
    if (!counts.active) return;
    const auto loss = loss_of(d, state.rules, state.own, token, counts, false);
    out[0] = loss.value;
    add_to(sums[kActive], 1);
    add_to(sums[kLoss], loss.value);
    if (kSums != kAll) return;
    add_to(sums[kKl], loss.kl);
    add_to(sums[kMinusX], Sub(token.old_logp, token.logp));
    add_to(sums[kClipped], loss.term.clipped ? 1 : 0);
    add_to(sums[kClippedLower], loss.term.clipped_lower ? 1 : 0);
    add_to(sums[kBelow], loss.term.below ? 1 : 0);
    add_to(sums[kAbove], loss.term.above ? 1 : 0);
    add_to(sums[kRatio], loss.ratio);
    add_to(sums[kEntropySum], token.entropy);
    add_to(sums[kPhi], loss.term.phi);
    add_to(sums[kWeightSum], counts.weight);
    if (!counts.selected) return;
    add_to(sums[kSelected], 1);
    add_to(sums[kBonus], token.entropy);
  }
  template <class View>
  static RLK_FORMULA void sequence(const PolicyRules& rules, const View& view, int64_t b, const double* sums,
                                   double* totals) {
    const double active = sums[kActive];
    for (int i = 0; i < kSums; ++i) add_to(totals[i], sums[i]);
    add_to(totals[kSequences], rules.weights.sequences_of(active));
    if (kSums == kAll) {
      const bool once = rules.has_sequence_weights() && rules.has_rollout && sums[kUnmasked] > 0;
      add_to(totals[kOnceWeight], once ? view.template own<PolicySequence>(b).weight : sums[kRawWeight]);
      add_to(totals[kOnce], once ? 1 : sums[kUnmasked]);
      if (view.has(PolicyPlace::sequence_metrics)) {
        view.put(PolicyPlace::sequence_metrics, b, 0, active);
        for (int i = 1; i < kMetricMeans; ++i) {
          view.put(PolicyPlace::sequence_metrics, b, i, active > 0 ? sums[i + 1] / active : 0.0);
        }
        view.put(PolicyPlace::sequence_metrics, b, kMetricMeans, rejected_share(sums));
      }
    }
    view.template own<PolicySequence>(b).active = active;
    view.template own<PolicySequence>(b).loss = sums[kLoss];
  }
  template <class View>
  static RLK_FORMULA void batch(const PolicyRules& rules, const View& view, const double* totals) {
    const double active = totals[kActive];
    auto& batch = view.template batch<PolicyTotals>();
    batch.tokens = active;
    batch.sequences = totals[kSequences];
    batch.bonus = 0;
    if (!kFew && rules.has_own_bonus)
      batch.bonus = rules.entropy_coefficient * totals[kBonus] / rules.entropy_divisor(totals[kSelected]);
    if (kSums != kAll || !view.has(PolicyPlace::metrics)) return;
    view.put(PolicyPlace::metrics, 0, active);
    for (int i = 1; i < kMetricMeans; ++i)
      view.put(PolicyPlace::metrics, i, active > 0 ? totals[i + 1] / active : totals[i + 1]);
    view.put(PolicyPlace::metrics, kMetricMeans, rejected_share(totals));
    view.put(PolicyPlace::metrics, kMetricMeans + 1, totals[kOnce] > 0 ? totals[kOnceWeight] / totals[kOnce] : 0);
    // In this order nothing is beyond fp64 where the answer is not.
    const double square = totals[kRawSquare], mean = totals[kRawWeight] / totals[kUnmasked];
    view.put(PolicyPlace::metrics, kMetricMeans + 2, square == 0 ? 0 : mean * (totals[kRawWeight] / square));
  }
  template <class View>
  static RLK_FORMULA double again(const PolicyRules& rules, const View& view, int64_t b) {
    const auto& own = view.template own<PolicySequence>(b);
    return weights_of_batch(rules, view).weighted(own.loss, own.active);
  }
  template <class View>
  static RLK_FORMULA void last(const PolicyRules&, const View& view, double sum) {
    view.put(PolicyPlace::loss, 0, sum - view.template batch<PolicyTotals>().bonus);
  }

private:
  static RLK_FORMULA double rejected_share(const double* sums) {
    return sums[kUnmasked] > 0 ? (sums[kUnmasked] - sums[kActive]) / sums[kUnmasked] : 0.0;
  }
};
using PlainPolicyLosses = PolicyLosses<true, false>;
using PlainPolicyMetrics = PolicyLosses<true, true>;
using AnyPolicyLosses = PolicyLosses<false, true>;
struct BriefPolicyLosses : PlainPolicyLosses {
  static constexpr unsigned kUses = kBriefUses, kBytes = kBriefBytes, kAbsent = 0;
  static constexpr bool kShort = true;
  static constexpr int kBlocks = 6, kShortBlocks = 8;

  static bool is_wanted(const PolicyRules& rules) { return is_brief(rules); }
  template <class View>
  static RLK_FORMULA PolicyState<true> begin(const PolicyRules& rules, const View& view, int64_t b) {
    return brief_state(policy_state<true>(rules, view, b));
  }
  template <class View>
  static RLK_FORMULA ShortRules begin_short(const PolicyRules& rules, const View& view, int64_t b) {
    return short_rules(policy_state<true>(rules, view, b));
  }
  template <int ins, int outs, int count>
  static RLK_FORMULA bool in_short(const ShortRules& state, const float (&in)[ins][count], double* sums,
                                   float (&out)[outs][count]) {
    bool is_sure = state.is_sure;
    for (int s = 0; s < count; ++s) {
      const float minus_a = -Add(in[PolicyPlace::advantages][s], state.advantage);
      const ShortTerm term = short_term(state, minus_a, 1, in[PolicyPlace::logp][s], in[PolicyPlace::old_logp][s]);
      const bool active = in[PolicyPlace::mask][s] != 0;
      out[0][s] = active ? term.value : 0;
      add_to(sums[kActive], active ? 1 : 0);
      add_to(sums[kLoss], out[0][s]);
      is_sure = is_sure & (term.is_sure | !active);
    }
    return is_sure;
  }
  template <class D>
  static RLK_FORMULA void token(D d, const PolicyState<true>& state, const double* in, double* sums, double* out) {
    const bool active = in[PolicyPlace::mask] != 0;
    const BriefTerm term = brief_term(d, state, in);
    const double value = term.value(), least = Mul(state.rules.dual_clip, term.minus_a);
    out[0] = IfThenElseZero(active, IfThenElse((term.minus_a > 0) & (value > least), least, value));
    add_to(sums[kActive], active ? 1 : 0);
    add_to(sums[kLoss], out[0]);
  }
};

// What a token's gradient is made of: the gradient of its loss, and that of its entropy's bonus.
template <bool plain, class View>
RLK_FORMULA PolicyState<plain> gradient_state(const PolicyRules& rules, const View& view, int64_t b) {
  PolicyState<plain> state = policy_state<plain>(rules, view, b);
  LossWeights weights = rules.weights;
  if (rules.has_own() && rules.length == 0) weights = weights_of_batch(rules, view);
  const double active = !weights.needs_counts() ? 1
                        : rules.length > 0      ? rules.length
                                                : view.template own<PolicySequence>(b).active;
  const double grad_loss = view.number(PolicyPlace::grad_loss, 0);
  state.of_loss = weights.weighted(grad_loss, active);
  if (rules.has_own_bonus) {
    const double selected = rules.length > 0 ? weights.tokens : view.template batch<PolicyTotals>().selected;
    state.of_bonus = grad_loss / rules.entropy_divisor(selected);
  }
  return state;
}

// What flows through the quantity of a sequence is collected from all of its tokens before it is shared out.
struct PolicyThrough : PolicyPass {
  static constexpr int kSums = 1, kLargest = 1;

  static bool is_wanted(const PolicyRules& rules) { return rules.shares; }
  template <class View>
  static RLK_FORMULA PolicyState<false> begin(const PolicyRules& rules, const View& view, int64_t b) {
    return gradient_state<false>(rules, view, b);
  }
  static RLK_FORMULA void token(const PolicyState<false>& state, const double* in, double* sums, double*) {
    const Lane<double> d;
    const auto token = policy_token(in, state.sequence_advantage);
    const auto counts = count_token(d, state.rules, state.weight_divisor, state.own, token, true);
    if (!counts.active) return;
    const auto loss = loss_of(d, state.rules, state.own, token, counts, false);
    add_to(sums[0], weighted(d, Add(state.of_loss, token.grad_per_token), loss.d_sequence));
  }
  template <class View>
  static RLK_FORMULA void sequence(const PolicyRules&, const View& view, int64_t b, const double* sums, double*) {
    view.template own<PolicySequence>(b).through = sums[0];
  }
};

template <bool plain>
struct PolicyGradients : PolicyPass {
  static constexpr int kOuts = plain ? 1 : 2, kSums = 0, kLargest = 0, kStep = plain ? 4 : 2;

  static bool is_wanted(const PolicyRules& rules) { return rules.is_plain == plain && !is_brief(rules); }
  template <class View>
  static RLK_FORMULA PolicyState<plain> begin(const PolicyRules& rules, const View& view, int64_t b) {
    return gradient_state<plain>(rules, view, b);
  }
  static RLK_FORMULA void token(const PolicyState<plain>& state, const double* in, double*, double* out) {
    const Lane<double> d;
    const PolicyRules& rules = state.rules;
    const auto token = policy_token(in, state.sequence_advantage);
    const auto counts = count_token(d, rules, state.weight_divisor, state.own, token, true);
    if (!counts.active) return;
    const double g = Add(state.of_loss, token.grad_per_token);
    out[0] = weighted(d, g, loss_of(d, rules, state.own, token, counts, false).d_own);
    if (plain) return;
    if (rules.shares) {
      out[0] = Add(times(d, state.own.through, share_of(d, rules, state.own, token, counts)), out[0]);
    }
    if (counts.selected) out[1] = Mul(-rules.entropy_coefficient, rules.has_own_bonus ? state.of_bonus : g);
  }
};
using PlainPolicyGradients = PolicyGradients<true>;
using AnyPolicyGradients = PolicyGradients<false>;
struct BriefPolicyGradients : PlainPolicyGradients {
  static constexpr unsigned kAbsent = 1u << PolicyPlace::grad_per_token;
  static constexpr unsigned kUses = kBriefUses | kAbsent, kBytes = kBriefBytes;
  static constexpr bool kShort = true;
  static constexpr int kBlocks = 4;  // one more would put what a token needs into memory
  static constexpr int kShortBlocks = 8;

  static bool is_wanted(const PolicyRules& rules) { return is_brief(rules); }
  template <class View>
  static RLK_FORMULA PolicyState<true> begin(const PolicyRules& rules, const View& view, int64_t b) {
    PolicyState<true> state = brief_state(gradient_state<true>(rules, view, b));
    // There is no bonus; what a ratio that is a bound has: half of its own slope, and half of what the clamp passes.
    const double part = rules.at_bound, passes = rules.ratio_low == rules.ratio_high ? Mul(part, part) : part;
    state.of_bonus = Mul(0.5, Add(1, passes));
    return state;
  }
  template <class View>
  static RLK_FORMULA ShortRules begin_short(const PolicyRules& rules, const View& view, int64_t b) {
    return short_rules(gradient_state<true>(rules, view, b));
  }
  template <int ins, int outs, int count>
  static RLK_FORMULA bool in_short(const ShortRules& state, const float (&in)[ins][count], double*,
                                   float (&out)[outs][count]) {
    bool is_sure = state.is_sure;
    for (int s = 0; s < count; ++s) {
      const float minus_a = -Add(in[PolicyPlace::advantages][s], state.advantage);
      const ShortTerm term =
          short_term(state, minus_a, state.of_loss, in[PolicyPlace::logp][s], in[PolicyPlace::old_logp][s]);
      const bool active = in[PolicyPlace::mask][s] != 0;
      out[0][s] = (active & term.is_inside) ? term.value : 0;
      is_sure = is_sure & (term.is_sure | !active);
    }
    return is_sure;
  }
  template <class D>
  static RLK_FORMULA void token(D d, const PolicyState<true>& state, const double* in, double*, double* out) {
    const BriefTerm term = brief_term(d, state, in);
    const double slope = Mul(term.minus_a, term.slope(state.of_bonus));
    const double value = term.value(), least = Mul(state.rules.dual_clip, term.minus_a);
    const bool is_negative = term.minus_a > 0;
    const double tied = IfThenElse(is_negative & (value == least), Mul(0.5, slope), slope);
    const double of_dual = IfThenZeroElse(is_negative & (value > least), tied);
    const double gradient = weighted(d, Add(state.of_loss, in[PolicyPlace::grad_per_token]), of_dual);
    out[0] = IfThenElseZero(in[PolicyPlace::mask] != 0, gradient);
  }
};

}  // namespace rlk::formula

RLK_SIMT_TOKEN_PASSES(PolicyCorrections, PolicyWeights, PolicyTerms, PolicyTokenCounts, PolicyThrough)
RLK_SIMT_TOKEN_PASSES(PlainPolicyLosses, PlainPolicyMetrics, AnyPolicyLosses, PlainPolicyGradients, AnyPolicyGradients)
RLK_SIMT_TOKEN_PACK_PASSES(PolicyMaskCounts)
RLK_SIMT_TOKEN_SHORT_PASSES(BriefPolicyLosses, BriefPolicyGradients)
RLK_SIMT_TOKENS(PolicyLoss, policy_loss_rules(call),
                (in(logp), in_or(old_logp, logp), in(advantages), or_one(mask), in(ref_logp), in(rollout_logp),
                 in(entropy), or_one(weight), none(in)),
                (out(per_token), put(loss), put(metrics), put(sequence_metrics), each(sequence_advantages)),
                (PolicyCorrections, PolicyWeights, PolicyTerms, BriefPolicyLosses, PlainPolicyLosses,
                 PlainPolicyMetrics, AnyPolicyLosses))
RLK_SIMT_TOKENS(PolicyLossBackward, policy_gradient_rules(call),
                (in(logp), in_or(old_logp, logp), in(advantages), or_one(mask), in(ref_logp), in(rollout_logp),
                 in(entropy), or_one(weight), or_zero(grad_per_token)),
                (out(grad_logp), out(grad_entropy), each(grad_loss), none(each), each(sequence_advantages)),
                (PolicyCorrections, PolicyWeights, PolicyTerms, PolicyMaskCounts, PolicyTokenCounts, PolicyThrough,
                 BriefPolicyGradients, PlainPolicyGradients, AnyPolicyGradients))
