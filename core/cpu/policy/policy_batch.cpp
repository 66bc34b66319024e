// Options and chunks of policy_loss.
#include "core/cpu/policy/policy_batch.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

PolicyRules::PolicyRules(const PolicyParams& params, double gradient_at_bounds)
    : ratio_low(params.clip_form == ClipForm::raw ? params.clip_low : 1 - params.clip_low),
      ratio_high(params.clip_form == ClipForm::raw ? params.clip_high : 1 + params.clip_high),
      x_low(-bound_or_none(params.log_ratio_clamp_low)),
      x_high(bound_or_none(params.log_ratio_clamp_high)),
      exp_low(std::max(x_low, -800.0)),
      exp_high(std::min(x_high, 800.0)),
      delta(bound_or_none(params.delta)),
      d_bound(bound_or_none(params.kl_diff_clamp)),
      kl_bound(bound_or_none(params.kl_value_clamp)),
      r_bound(bound_or_none(params.rollout_log_clamp)),
      clamps_log_ratio(!std::isinf(x_low) || !std::isinf(x_high)),
      has_dual_clip(params.dual_clip > 0),
      at_bound(gradient_at_bounds),
      token{params.reject_token_k1_low, params.reject_token_k1_high, params.reject_token_k2_high,
            params.reject_token_k3_high},
      sequence_sum{params.reject_sequence_sum_k1_low, params.reject_sequence_sum_k1_high,
                   params.reject_sequence_sum_k2_high, params.reject_sequence_sum_k3_high},
      sequence_mean{params.reject_sequence_mean_k1_low, params.reject_sequence_mean_k1_high,
                    params.reject_sequence_mean_k2_high, params.reject_sequence_mean_k3_high},
      sequence_max{0, 0, params.reject_sequence_max_k2_high, params.reject_sequence_max_k3_high},
      rejects_tokens(token.any()),
      rejects_sequences(sequence_sum.any() || sequence_mean.any() || sequence_max.any()) {}

PolicyBatch::PolicyBatch(const PolicyCall& given, double gradient_at_bounds)
    : call(given),
      params(given.params),
      sequences(sequences_of(given.logp, given.cu_seqlens)),
      rules(given.params, gradient_at_bounds),
      has_rollout(given.rollout_logp.present()) {}

bool PolicyBatch::has_sequence_corrections() const {
  return has_rollout &&
         (rules.rejects_sequences || has_sequence_weights() || params.rollout_is == RolloutIs::geometric_mask);
}

bool PolicyBatch::has_sequence_terms() const {
  return params.importance_ratio != ImportanceRatio::token || params.opsm != Opsm::off || params.kind == Kind::gmpo ||
         params.kind == Kind::vespo;
}

void PolicyBatch::number_chunks(int64_t* first_chunks) {
  chunks = first_chunks;
  chunks[0] = 0;
  for (int64_t b = 0; b < sequences.count; ++b) {
    chunks[b + 1] = chunks[b] + (sequences.tokens(b) + kPolicyChunk - 1) / kPolicyChunk;
  }
}

}  // namespace rlk::cpu
