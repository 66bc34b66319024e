// The parameters of policy_loss as its kernels take them, in the order of the declaration's values.
#pragma once

#include <cstdint>
#include <limits>

#include "core/cpu/policy/ratio_kl.hpp"

namespace rlk::cpu {

enum class PolicyKind : int64_t { ppo, cispo, sapo, vespo, gmpo, gpg, dro, dppo_tv, dppo_kl };
enum class RatioLevel : int64_t { token, sequence, sequence_token };
enum class ClipForm : int64_t { around_one, raw };
enum class KlGradient : int64_t { value, k2 };
enum class RolloutIs : int64_t { none, token_truncate, token_mask, sequence_truncate, sequence_mask, geometric_mask };
enum class EntropyAggregation : int64_t { as_loss, token_mean };
// Whose log-probabilities the corrections compare with the sampler's.
enum class RolloutRatio : int64_t { old, current };
enum class Opsm : int64_t { off, old, rollout };
enum class PolicyAggregation : int64_t { token_mean, token_sum, seq_mean_token_mean, seq_mean_token_sum, none };

// What a token or a sequence must pass to stay in the mask, of the estimates k1, k2 and k3 between trainer and sampler.
struct RejectionBounds {
  double k1_low = 0.0, k1_high = 0.0, k2_high = 0.0, k3_high = 0.0;  // 0: off; those of k1 bound exp(k1)

  bool any() const { return k1_low > 0 || k1_high > 0 || k2_high > 0 || k3_high > 0; }
};

struct PolicyOptions {
  PolicyKind kind = PolicyKind::ppo;
  RatioLevel importance_ratio = RatioLevel::token;
  ClipForm clip_form = ClipForm::around_one;
  double clip_low = 0.2, clip_high = 0.2;
  double delta = 0.0, dual_clip = 0.0;                           // 0: off
  double log_ratio_clamp_low = 0.0, log_ratio_clamp_high = 0.0;  // 0: off
  double sapo_tau_positive = 1.0, sapo_tau_negative = 1.05;
  double vespo_k_positive = 2.0, vespo_lambda_positive = 3.0;
  double vespo_k_negative = 3.0, vespo_lambda_negative = 2.0;
  double dro_beta = 0.1;
  double beta = 0.0;
  KlKind kl_kind = KlKind::k3;
  KlGradient kl_gradient = KlGradient::value;
  double kl_diff_clamp = 0.0, kl_value_clamp = 0.0;  // 0: off
  bool kl_bias_correction = false;
  double entropy_coefficient = 0.0;
  EntropyAggregation entropy_aggregation = EntropyAggregation::as_loss;
  double entropy_denominator = 0.0;  // 0: the natural one
  double top_entropy_quantile = 1.0;
  double least_entropy = 0.0;  // 0: off
  RolloutIs rollout_is = RolloutIs::token_truncate;
  double rollout_is_min = 0.0, rollout_is_max = 3.0;
  RolloutRatio rollout_ratio = RolloutRatio::old;
  double rollout_log_clamp = 0.0;  // 0: off
  bool rollout_is_normalize = false;
  double rollout_is_mean = 0.0;  // 0: of the batch
  RejectionBounds reject_token;
  RejectionBounds reject_sequence_sum, reject_sequence_mean, reject_sequence_max;  // the maximum has no k1
  Opsm opsm = Opsm::off;
  double opsm_threshold = 0.0;
  PolicyAggregation aggregation = PolicyAggregation::token_mean;
  double denominator = 0.0;  // 0: the natural one
  bool exclude_empty_sequences = false;
  double seq_denominator_floor = 1.0;
};

// Whether all tokens of a sequence have one importance weight.
inline bool is_of_sequence(RolloutIs mode) {
  return mode == RolloutIs::sequence_truncate || mode == RolloutIs::sequence_mask;
}

// A bound of which 0 means none.
inline double bound_or_none(double bound) {
  return bound > 0 ? bound : std::numeric_limits<double>::infinity();
}

}  // namespace rlk::cpu
