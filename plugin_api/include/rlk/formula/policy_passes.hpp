// What passes over the tokens of policy_loss find before its losses: corrections of sequences, the mean importance
// weight, terms of sequences, counts. A pass has a token at a time, then its sequence's sums, then those of the batch.
#pragma once

#include <rlk/formula/policy_loss.hpp>
#include <rlk/formula/policy_sequences.hpp>

namespace rlk::formula {

// The places of the arguments, the same in both directions.
struct PolicyPlace {
  enum { logp, old_logp, advantages, mask, ref_logp, rollout_logp, entropy, weight, grad_per_token };
  enum { per_token = 9, loss = 10, metrics, sequence_metrics };
  enum { grad_logp = 9, grad_entropy = 10, grad_loss };
  enum { sequence_advantages = 13 };
};

template <bool plain>
struct PolicyState {
  const PolicyRules& rules;
  PolicySequence own;
  double sequence_advantage, weight_divisor, of_loss, of_bonus;
};
template <>
struct PolicyState<true> {
  PolicyRules rules;
  PolicySequence own;
  double sequence_advantage, weight_divisor, of_loss, of_bonus;
};

template <bool plain, class View>
RLK_FORMULA PolicyState<plain> policy_state(const PolicyRules& rules, const View& view, int64_t b) {
  const double advantage = view.number(PolicyPlace::sequence_advantages, b);
  if constexpr (plain) {
    return {plain_rules(rules), PolicySequence(), advantage, 1, 0, 0};
  } else {
    const double divisor = rules.needs_mean ? view.template batch<PolicyTotals>().weight_divisor : rules.weight_divisor;
    return {rules, rules.has_own() ? view.template own<PolicySequence>(b) : PolicySequence(), advantage, divisor, 0, 0};
  }
}

RLK_FORMULA PolicyToken<double> policy_token(const double* in, double sequence_advantage) {
  return {in[PolicyPlace::logp],    in[PolicyPlace::old_logp], Add(in[PolicyPlace::advantages], sequence_advantage),
          in[PolicyPlace::mask],    in[PolicyPlace::ref_logp], in[PolicyPlace::rollout_logp],
          in[PolicyPlace::entropy], in[PolicyPlace::weight],   in[PolicyPlace::grad_per_token]};
}

RLK_FORMULA void add_to(double& sum, double more) {
  sum = Add(sum, more);
}

struct PolicyPass {
  using Rules = PolicyRules;
  using Own = PolicySequence;
  static constexpr int kIns = 9, kOuts = 0, kTotals = 1, kStep = 2;
  static constexpr bool kAgain = false;

  template <class View>
  static RLK_FORMULA PolicyState<false> begin(const PolicyRules& rules, const View& view, int64_t b) {
    return policy_state<false>(rules, view, b);
  }
  template <class View>
  static RLK_FORMULA void sequence(const PolicyRules&, const View&, int64_t, const double*, double*) {}
  template <class View>
  static RLK_FORMULA void batch(const PolicyRules&, const View&, const double*) {}
};

// What sequences take from the sampler.
struct PolicyCorrections : PolicyPass, CorrectionSum {
  static constexpr int kSums = kAll, kLargest = kLargestK2;

  static bool is_wanted(const PolicyRules& rules) { return rules.has_corrections; }
  template <class View>
  static RLK_FORMULA PolicyState<false> begin(const PolicyRules& rules, const View&, int64_t) {
    return {rules, PolicySequence(), 0, 1, 0, 0};
  }
  static RLK_FORMULA void token(const PolicyState<false>& state, const double* in, double* sums, double*) {
    const Lane<double> d;
    const auto token = policy_token(in, 0);
    if (token.mask == 0) return;
    const auto rollout = rollout_of(d, state.rules, token);
    add_to(sums[kTokens], 1);
    add_to(sums[kR], rollout.r);
    add_to(sums[kDivergence], rollout.divergence);
    if (!state.rules.rejects_sequences) return;
    const auto k = rollout_estimates(d, state.rules, rollout.r);
    add_to(sums[kK1], k.first);
    add_to(sums[kK2], k.second);
    add_to(sums[kK3], k.third);
    raise(sums[kLargestK2], k.second);
    raise(sums[kLargestK3], k.third);
  }
  template <class View>
  static RLK_FORMULA void sequence(const PolicyRules& rules, const View& view, int64_t b, const double* sums, double*) {
    const auto keeps = [](const RejectionBounds& bounds, double k1, double k2, double k3) {
      return is_kept(Lane<double>(), bounds, Three<double>{k1, k2, k3});
    };
    view.template own<PolicySequence>(b) = corrected_sequence(rules, sums, keeps);
  }

private:
  static RLK_FORMULA void raise(double& largest, double x) { largest = x > largest || x != x ? x : largest; }
};

// The mean of the importance weights over all unmasked tokens, or of the weights of sequences, each once.
struct PolicyWeights : PolicyPass {
  static constexpr int kSums = 2, kLargest = 2, kTotals = 2;

  static bool is_wanted(const PolicyRules& rules) { return rules.needs_mean; }
  template <class View>
  static RLK_FORMULA PolicyState<false> begin(const PolicyRules& rules, const View& view, int64_t b) {
    return {rules, rules.has_corrections ? view.template own<PolicySequence>(b) : PolicySequence(), 0, 1, 0, 0};
  }
  static RLK_FORMULA void token(const PolicyState<false>& state, const double* in, double* sums, double*) {
    const Lane<double> d;
    const auto token = policy_token(in, 0);
    if (token.mask == 0) return;
    add_to(sums[0], rollout_weight(d, state.rules, state.own, rollout_of(d, state.rules, token)));
    add_to(sums[1], 1);
  }
  template <class View>
  static RLK_FORMULA void sequence(const PolicyRules& rules, const View& view, int64_t b, const double* sums,
                                   double* totals) {
    const bool once = rules.has_sequence_weights() && sums[1] > 0;
    add_to(totals[0], once ? view.template own<PolicySequence>(b).weight : sums[0]);
    add_to(totals[1], once ? 1 : sums[1]);
  }
  template <class View>
  static RLK_FORMULA void batch(const PolicyRules&, const View& view, const double* totals) {
    const double mean = totals[0] / totals[1];  // of no weights NaN, which divides nothing
    view.template batch<PolicyTotals>().weight_divisor = mean > kLeastMean ? mean : 1;
  }
};

// How many tokens count.
struct PolicyCountsPass : PolicyPass {
  enum { kActive, kSelected };
  static constexpr int kSums = 2, kLargest = 2, kTotals = 3;

  static RLK_FORMULA bool is_by_mask(const PolicyRules& rules) { return !rules.has_rollout && !rules.selects; }
  template <class View>
  static RLK_FORMULA void sequence(const PolicyRules& rules, const View& view, int64_t b, const double* sums,
                                   double* totals) {
    PolicySequence own;
    if (rules.has_corrections) own = view.template own<PolicySequence>(b);
    own.active = sums[kActive];
    own.selected = sums[kSelected];
    if (rules.is_plain) {
      view.template own<PolicySequence>(b).active = own.active;  // nothing else is looked at, and writing it takes long
    } else {
      view.template own<PolicySequence>(b) = own;
    }
    count(rules, own, totals);
  }
  template <class View>
  static RLK_FORMULA void batch(const PolicyRules&, const View& view, const double* totals) {
    put(view, totals);
  }

  static RLK_FORMULA void count(const PolicyRules& rules, const PolicySequence& own, double* totals) {
    add_to(totals[0], own.active);
    add_to(totals[1], rules.weights.sequences_of(own.active));
    add_to(totals[2], own.selected);
  }
  template <class View>
  static RLK_FORMULA void put(const View& view, const double* totals) {
    auto& batch = view.template batch<PolicyTotals>();
    batch.tokens = totals[0];
    batch.sequences = totals[1];
    batch.selected = totals[2];
  }
};
struct PolicyTokenCounts : PolicyCountsPass {
  static bool is_wanted(const PolicyRules& rules) { return rules.has_counts && !rules.has_terms && !is_by_mask(rules); }
  template <class View>
  static RLK_FORMULA PolicyState<false> begin(const PolicyRules& rules, const View& view, int64_t b) {
    return {rules, rules.has_corrections ? view.template own<PolicySequence>(b) : PolicySequence(), 0, 1, 0, 0};
  }
  static RLK_FORMULA void token(const PolicyState<false>& state, const double* in, double* sums, double*) {
    const auto counts = count_token(Lane<double>(), state.rules, 1, state.own, policy_token(in, 0), true);
    if (counts.active) add_to(sums[kActive], 1);
    if (counts.selected) add_to(sums[kSelected], 1);
  }
};
// Nothing but the mask takes any out.
struct PolicyMaskCounts : PolicyCountsPass {
  static constexpr unsigned kUses = 1u << PolicyPlace::mask, kBytes = kUses, kAbsent = 0;
  static constexpr int kBlocks = 6;
  struct Nothing {};

  static bool is_wanted(const PolicyRules& rules) { return rules.has_counts && !rules.has_terms && is_by_mask(rules); }
  template <class View>
  static RLK_FORMULA Nothing begin(const PolicyRules&, const View&, int64_t) {
    return {};
  }
  template <class D>
  static RLK_FORMULA void token(D, const Nothing&, const double* in, double* sums, double*) {
    const double active = in[PolicyPlace::mask] != 0 ? 1 : 0;
    add_to(sums[kActive], active);
    add_to(sums[kSelected], active);
  }
  // The same of so many bytes that are not 0.
  static RLK_FORMULA void bytes(double active, double* sums) {
    add_to(sums[kActive], active);
    add_to(sums[kSelected], active);
  }
};

// What the losses of a sequence's tokens share: its ratio, and what opsm, gmpo and vespo take of it.
struct PolicyTerms : PolicyPass, TermSum {
  static constexpr int kSums = kAll, kLargest = kAll, kTotals = 3;

  static bool is_wanted(const PolicyRules& rules) { return rules.has_terms; }
  template <class View>
  static RLK_FORMULA PolicyState<false> begin(const PolicyRules& rules, const View& view, int64_t b) {
    PolicyState<false> state = policy_state<false>(rules, view, b);
    if (!rules.has_corrections) state.own = PolicySequence();  // nothing has been kept of it yet
    return state;
  }
  static RLK_FORMULA void token(const PolicyState<false>& state, const double* in, double* sums, double*) {
    const Lane<double> d;
    const PolicyRules& rules = state.rules;
    const auto token = policy_token(in, state.sequence_advantage);
    const auto counts = count_token(d, rules, state.weight_divisor, state.own, token, true);
    if (!counts.active) return;
    const double x = Sub(token.logp, token.old_logp);
    add_to(sums[kActive], 1);
    if (counts.selected) add_to(sums[kSelected], 1);
    add_to(sums[kX], x);
    if (rules.opsm == PolicyRules::Opsm::old) add_to(sums[kOff], -x);
    if (rules.opsm == PolicyRules::Opsm::rollout && !(rules.missing_is_one && IsNaN(token.rollout_logp))) {
      add_to(sums[kOff], Sub(token.rollout_logp, token.logp));
    }
    if (rules.kind == PolicyRules::Kind::gmpo) {
      if (!rules.means_selected || counts.selected) {
        const double log_ratio = clamped(d, x, rules.x_low, rules.x_high);
        add_to(sums[kL], geometric_term(d, rules, token.advantage, log_ratio).value);
        add_to(sums[kMeant], 1);
      }
      add_to(sums[kAdvantage], token.advantage);
      if (rules.has_rollout) add_to(sums[kLogWeight], log_of(d, Add(counts.weight, 1e-10)));
    }
    if (rules.kind == PolicyRules::Kind::vespo) {
      add_to(sums[kU], clamped(d, x, -20, 20));
      if (rules.has_rollout) add_to(sums[kU], clamped(d, log_of(d, counts.weight), kLeastLog, 20));
    }
  }
  template <class View>
  static RLK_FORMULA void sequence(const PolicyRules& rules, const View& view, int64_t b, const double* sums,
                                   double* totals) {
    PolicySequence own;
    if (rules.has_corrections) own = view.template own<PolicySequence>(b);
    put_terms(rules, sums, own);
    PolicyMaskCounts::count(rules, own, totals);
    view.template own<PolicySequence>(b) = own;
  }
  template <class View>
  static RLK_FORMULA void batch(const PolicyRules&, const View& view, const double* totals) {
    PolicyMaskCounts::put(view, totals);
  }
};

}  // namespace rlk::formula
