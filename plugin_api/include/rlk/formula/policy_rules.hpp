// The parameters of policy_loss as its formulas use them, and what a token takes from its sequence and from the batch.
#pragma once

#include <rlk/formula/clamp.hpp>
#include <rlk/formula/loss_weights.hpp>

namespace rlk::formula {

// What a token or a sequence must pass to stay in the mask, of the estimates k1, k2 and k3 between trainer and sampler.
struct RejectionBounds {
  double k1_low, k1_high, k2_high, k3_high;
  bool has_k1_low, has_k1_high, has_k2_high, has_k3_high;

  RLK_FORMULA_OF_A_CLAMP bool any() const { return has_k1_low || has_k1_high || has_k2_high || has_k3_high; }
};

// Enumerations by the declaration's numbers.
struct PolicyRules {
  enum class Kind { ppo, cispo, sapo, vespo, gmpo, gpg, dro, dppo_tv, dppo_kl, clip_cov, kl_cov };
  enum class Ratio { token, sequence, sequence_token, sequence_sum };
  enum class KlKind { k1, abs, k2, k3 };
  enum class KlGradient { value, k2, k2_weighted };
  enum class KlBias { off, on, token };
  enum class RolloutIs { none, token_truncate, token_mask, sequence_truncate, sequence_mask, geometric_mask };
  enum class Gate { ratio, binary_kl, tv };
  enum class Opsm { off, old, rollout };

  Kind kind;
  Ratio importance_ratio;
  double ratio_low, ratio_high;  // the clip
  double clip_low, clip_high;    // as they were given
  double x_low, x_high;          // of the log ratio
  double delta, dual_clip;
  bool clamps_log_ratio;
  double at_bound;  // what clamps pass of the gradient at their bounds; the forward has none
  double tau_positive, tau_negative, k_positive, lambda_positive, k_negative, lambda_negative, dro_beta;
  double cov_coefficient;
  bool means_selected;  // gmpo: over the tokens that the entropy selects

  double beta, d_bound, kl_bound, k2_weight_max;
  KlKind kl_kind;
  KlGradient kl_gradient;
  KlBias kl_bias;

  double entropy_coefficient, entropy_denominator, least_entropy;
  bool has_own_bonus;  // the bonus is a mean by itself, and no part of the losses
  bool selects;        // tokens by their entropy: those of least_entropy and more

  RolloutIs rollout_is;
  Gate gate;
  Opsm opsm;
  double rollout_low, rollout_high, r_bound, opsm_threshold;
  double weight_divisor;  // of importance weights, unless needs_mean
  bool of_current, means_rollout, truncates_gated, missing_is_one;
  bool needs_mean;
  RejectionBounds token, sequence_sum, sequence_mean, sequence_max;  // the maximum has no k1
  bool rejects_tokens, rejects_sequences;

  LossWeights weights;
  bool has_rollout, has_reference, has_weight;
  bool has_corrections, has_terms;  // sequences have something before the losses
  bool shares;                      // a sequence's quantity passes its gradient to all of its tokens
  bool has_counts;                  // counts of active and selected tokens are needed before the gradient
  double length;                    // of dense sequences of which nothing leaves a token out, else 0
  bool is_plain, has_metrics, takes_by_batch;

  RLK_FORMULA_OF_A_CLAMP bool has_sequence_weights() const {
    return rollout_is == RolloutIs::sequence_truncate || rollout_is == RolloutIs::sequence_mask;
  }
  // Whether a pass before keeps something of each sequence.
  RLK_FORMULA_OF_A_CLAMP bool has_own() const { return has_corrections || has_terms || has_counts; }
  RLK_FORMULA_OF_A_CLAMP double entropy_divisor(double selected) const {
    return entropy_denominator > 0 ? entropy_denominator : selected < 1 ? 1.0 : selected;
  }
};

// What tokens take from their sequence.
struct PolicySequence {
  // Of the corrections, from the unmasked tokens.
  bool rejected = false;
  bool keeps_weights = true;  // geometric_mask
  double weight = 1;          // of every token, where weights are of sequences
  // From the active tokens.
  double active = 0, selected = 0;
  double log_ratio = 0, log_ratio_slope = 0;  // sum x / n, or sum x, clamped
  double off_policy = 0;                      // opsm: mean(l - logp)
  double phi_positive = 0, phi_negative = 0;  // vespo: by the sign of the advantage
  double geometric = 0;                       // gmpo: -(sum A / n) exp(sum L / n)
  double geometric_weight = 1;
  double meant = 1;    // gmpo: tokens of the mean of log ratios, at least 1
  double through = 0;  // of the gradient, what flows through the sequence's quantity
  double loss = 0;
};

// And from the batch.
struct PolicyTotals {
  double weight_divisor, tokens, sequences, selected;
  double bonus;  // of the entropy, where it is a mean by itself
};

constexpr double kLeastMean = 1e-8;  // weights of a smaller mean are not divided by it

// Without the parts that the call's tensors decide (policy_rules_with).
template <class Params>
inline PolicyRules policy_rules(const Params& params, double at_bound) {
  const auto is_on = [](auto option) { return option == decltype(option)::on; };
  const auto bounds = [](double k1_low, double k1_high, double k2_high, double k3_high) {
    const auto log = [](double x) { return x > 0 ? __builtin_log(x) : 0.0; };
    return RejectionBounds{log(k1_low), log(k1_high), k2_high,     k3_high,
                           k1_low > 0,  k1_high > 0,  k2_high > 0, k3_high > 0};
  };
  PolicyRules rules{};
  const bool is_raw = params.clip_form == decltype(params.clip_form)::raw;
  rules.kind = static_cast<PolicyRules::Kind>(params.kind);
  rules.importance_ratio = static_cast<PolicyRules::Ratio>(params.importance_ratio);
  rules.ratio_low = is_raw ? params.clip_low : 1 - params.clip_low;
  rules.ratio_high = is_raw ? params.clip_high : 1 + params.clip_high;
  rules.clip_low = params.clip_low;
  rules.clip_high = params.clip_high;
  rules.x_low = -bound_or_none(params.log_ratio_clamp_low);
  rules.x_high = bound_or_none(params.log_ratio_clamp_high);
  rules.delta = bound_or_none(params.delta);
  rules.dual_clip = params.dual_clip;
  // is_no_bound may be a device's function, and this is the host's.
  const auto is_bound = [](double bound) { return bound > 0 && bound < __builtin_huge_val(); };
  rules.clamps_log_ratio = is_bound(params.log_ratio_clamp_low) || is_bound(params.log_ratio_clamp_high);
  rules.at_bound = at_bound;
  rules.tau_positive = params.sapo_tau_positive;
  rules.tau_negative = params.sapo_tau_negative;
  rules.k_positive = params.vespo_k_positive;
  rules.lambda_positive = params.vespo_lambda_positive;
  rules.k_negative = params.vespo_k_negative;
  rules.lambda_negative = params.vespo_lambda_negative;
  rules.dro_beta = params.dro_beta;
  rules.cov_coefficient = params.cov_coefficient;
  rules.means_selected = params.gmpo_mean == decltype(params.gmpo_mean)::selected;
  rules.beta = params.beta;
  rules.d_bound = bound_or_none(params.kl_diff_clamp);
  rules.kl_bound = bound_or_none(params.kl_value_clamp);
  rules.k2_weight_max = params.kl_gradient_weight_max;
  rules.kl_kind = static_cast<PolicyRules::KlKind>(params.kl_kind);
  rules.kl_gradient = static_cast<PolicyRules::KlGradient>(params.kl_gradient);
  rules.kl_bias = static_cast<PolicyRules::KlBias>(params.kl_bias_correction);
  rules.entropy_coefficient = params.entropy_coefficient;
  rules.entropy_denominator = params.entropy_denominator;
  rules.least_entropy = params.least_entropy;
  rules.has_own_bonus =
      params.entropy_coefficient != 0 && params.entropy_aggregation == decltype(params.entropy_aggregation)::token_mean;
  rules.selects = params.least_entropy > 0;
  rules.rollout_is = static_cast<PolicyRules::RolloutIs>(params.rollout_is);
  rules.gate = static_cast<PolicyRules::Gate>(params.rollout_gate);
  rules.opsm = static_cast<PolicyRules::Opsm>(params.opsm);
  rules.rollout_low = params.rollout_is_min;
  rules.rollout_high = params.rollout_is_max;
  rules.r_bound = bound_or_none(params.rollout_log_clamp);
  rules.opsm_threshold = params.opsm_threshold;
  rules.of_current = params.rollout_ratio == decltype(params.rollout_ratio)::current;
  rules.means_rollout = params.rollout_sequence == decltype(params.rollout_sequence)::mean;
  rules.truncates_gated = params.rollout_gated == decltype(params.rollout_gated)::truncated;
  rules.missing_is_one = params.rollout_missing == decltype(params.rollout_missing)::one;
  const bool normalizes = is_on(params.rollout_is_normalize);
  rules.needs_mean = normalizes && params.rollout_is_mean == 0;
  rules.weight_divisor = normalizes && params.rollout_is_mean > kLeastMean ? params.rollout_is_mean : 1.0;
  rules.token = bounds(params.reject_token_k1_low, params.reject_token_k1_high, params.reject_token_k2_high,
                       params.reject_token_k3_high);
  rules.sequence_sum = bounds(params.reject_sequence_sum_k1_low, params.reject_sequence_sum_k1_high,
                              params.reject_sequence_sum_k2_high, params.reject_sequence_sum_k3_high);
  rules.sequence_mean = bounds(params.reject_sequence_mean_k1_low, params.reject_sequence_mean_k1_high,
                               params.reject_sequence_mean_k2_high, params.reject_sequence_mean_k3_high);
  rules.sequence_max = bounds(0, 0, params.reject_sequence_max_k2_high, params.reject_sequence_max_k3_high);
  rules.rejects_tokens = rules.token.any();
  rules.rejects_sequences = rules.sequence_sum.any() || rules.sequence_mean.any() || rules.sequence_max.any();
  rules.weights = loss_weights(params);
  return rules;
}

// With what the optional inputs of a call decide: rollout_logp, ref_logp and weight.
template <class Params>
inline PolicyRules policy_rules_with(const Params& params, double at_bound, bool has_rollout, bool has_reference,
                                     bool has_weight) {
  PolicyRules rules = policy_rules(params, at_bound);
  using Kind = PolicyRules::Kind;
  using Ratio = PolicyRules::Ratio;
  rules.has_rollout = has_rollout;
  rules.has_reference = has_reference;
  rules.has_weight = has_weight;
  const bool by_token = rules.importance_ratio == Ratio::token;
  rules.has_corrections = rules.has_rollout && (rules.rejects_sequences || rules.has_sequence_weights() ||
                                                rules.rollout_is == PolicyRules::RolloutIs::geometric_mask);
  rules.has_terms =
      !by_token || rules.opsm != PolicyRules::Opsm::off || rules.kind == Kind::gmpo || rules.kind == Kind::vespo;
  rules.shares = rules.importance_ratio == Ratio::sequence || rules.importance_ratio == Ratio::sequence_sum ||
                 rules.kind == Kind::gmpo;
  rules.is_plain = rules.kind == Kind::ppo && by_token && rules.opsm == PolicyRules::Opsm::off &&
                   rules.entropy_coefficient == 0 && !rules.has_rollout && !rules.selects && !rules.has_weight;
  rules.takes_by_batch = rules.kind == Kind::clip_cov || rules.kind == Kind::kl_cov || params.top_entropy_quantile < 1;
  return rules;
}
// Call: the arguments by name, as pointers.
template <class Call>
inline PolicyRules policy_rules_of(const Call& call, double at_bound) {
  return policy_rules_with(call.params, at_bound, call.rollout_logp != nullptr, call.ref_logp != nullptr,
                           call.weight != nullptr);
}
template <class Call>
inline PolicyRules policy_loss_rules(const Call& call) {
  PolicyRules rules = policy_rules_of(call, 0);
  rules.has_metrics = call.metrics != nullptr || call.sequence_metrics != nullptr;
  return rules;
}
template <class Call>
inline PolicyRules policy_gradient_rules(const Call& call) {
  PolicyRules rules = policy_rules_of(call, gradient_at_bound(call.params.clamp_gradient));
  const bool is_packed = call.cu_seqlens != nullptr;
  rules.has_counts = is_packed || rules.weights.needs_counts() || (rules.has_own_bonus && call.grad_entropy != nullptr);
  rules.is_plain = rules.is_plain && call.grad_entropy == nullptr;
  // Nothing leaves a token out: every one counts.
  if (!is_packed && call.mask == nullptr && !rules.has_rollout && !rules.selects && !rules.has_terms) {
    rules.has_counts = false;
    rules.length = static_cast<double>(call.logp->shape[1]);
    const auto sequences = static_cast<double>(call.logp->shape[0]);
    rules.weights.tokens = sequences * rules.length;
    rules.weights.sequences = sequences * rules.weights.sequences_of(rules.length);
  }
  return rules;
}

// Tells the compiler what a plain batch has not got: it makes a pass of its own without all that.
RLK_FORMULA_OF_A_CLAMP PolicyRules plain_rules(const PolicyRules& given) {
  PolicyRules rules = given;
  rules.kind = PolicyRules::Kind::ppo;
  rules.importance_ratio = PolicyRules::Ratio::token;
  rules.opsm = PolicyRules::Opsm::off;
  rules.entropy_coefficient = 0;
  rules.has_own_bonus = rules.has_rollout = rules.selects = rules.has_weight = rules.shares = false;
  return rules;
}

// Why a device does not take such a call, or null.
inline const char* refusal_of(const PolicyRules& rules) {
  return rules.takes_by_batch ? "tokens are not chosen among those of the whole batch here: clip_cov, kl_cov and "
                                "top_entropy_quantile"
                              : nullptr;
}

}  // namespace rlk::formula
