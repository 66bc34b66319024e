// The arguments that policy_loss and its backward share.
#pragma once

#include "core/cpu/plugin/arguments.hpp"
#include "core/cpu/policy/policy_loss.hpp"

namespace rlk::cpu {

template <class Params>
PolicyOptions policy_options(const Params& params) {
  PolicyOptions options;
  options.kind = static_cast<PolicyKind>(params.kind);
  options.importance_ratio = static_cast<RatioLevel>(params.importance_ratio);
  options.clip_form = static_cast<ClipForm>(params.clip_form);
  options.clip_low = params.clip_low;
  options.clip_high = params.clip_high;
  options.delta = params.delta;
  options.dual_clip = params.dual_clip;
  options.log_ratio_clamp_low = params.log_ratio_clamp_low;
  options.log_ratio_clamp_high = params.log_ratio_clamp_high;
  options.sapo_tau_positive = params.sapo_tau_positive;
  options.sapo_tau_negative = params.sapo_tau_negative;
  options.vespo_k_positive = params.vespo_k_positive;
  options.vespo_lambda_positive = params.vespo_lambda_positive;
  options.vespo_k_negative = params.vespo_k_negative;
  options.vespo_lambda_negative = params.vespo_lambda_negative;
  options.dro_beta = params.dro_beta;
  options.beta = params.beta;
  options.kl_kind = static_cast<KlKind>(params.kl_kind);
  options.kl_gradient = static_cast<KlGradient>(params.kl_gradient);
  options.kl_diff_clamp = params.kl_diff_clamp;
  options.kl_value_clamp = params.kl_value_clamp;
  options.kl_bias_correction = params.kl_bias_correction != 0;
  options.entropy_coefficient = params.entropy_coefficient;
  options.entropy_aggregation = static_cast<EntropyAggregation>(params.entropy_aggregation);
  options.entropy_denominator = params.entropy_denominator;
  options.top_entropy_quantile = params.top_entropy_quantile;
  options.least_entropy = params.least_entropy;
  options.rollout_is = static_cast<RolloutIs>(params.rollout_is);
  options.rollout_is_min = params.rollout_is_min;
  options.rollout_is_max = params.rollout_is_max;
  options.rollout_ratio = static_cast<RolloutRatio>(params.rollout_ratio);
  options.rollout_log_clamp = params.rollout_log_clamp;
  options.rollout_is_normalize = params.rollout_is_normalize != 0;
  options.rollout_is_mean = params.rollout_is_mean;
  options.reject_token = {params.reject_token_k1_low, params.reject_token_k1_high, params.reject_token_k2_high,
                          params.reject_token_k3_high};
  options.reject_sequence_sum = {params.reject_sequence_sum_k1_low, params.reject_sequence_sum_k1_high,
                                 params.reject_sequence_sum_k2_high, params.reject_sequence_sum_k3_high};
  options.reject_sequence_mean = {params.reject_sequence_mean_k1_low, params.reject_sequence_mean_k1_high,
                                  params.reject_sequence_mean_k2_high, params.reject_sequence_mean_k3_high};
  options.reject_sequence_max = {0.0, 0.0, params.reject_sequence_max_k2_high, params.reject_sequence_max_k3_high};
  options.opsm = static_cast<Opsm>(params.opsm);
  options.opsm_threshold = params.opsm_threshold;
  options.aggregation = static_cast<PolicyAggregation>(params.aggregation);
  options.denominator = params.denominator;
  options.exclude_empty_sequences = params.exclude_empty_sequences != 0;
  options.seq_denominator_floor = params.seq_denominator_floor;
  return options;
}

// [B, T], [S], or [B] when it has no tokens.
inline TokenTensor token_tensor(const rlk_tensor* tensor) {
  if (tensor == nullptr) return {};
  const bool padded = tensor->ndim == 2;
  return {sdk::data_of(tensor), kernel_dtype(*tensor), padded ? tensor->strides[0] : 0,
          tensor->strides[padded ? 1 : 0]};
}
inline TokenOutput token_output(const rlk_tensor* tensor) {
  if (tensor == nullptr) return {};
  const bool padded = tensor->ndim == 2;
  return {sdk::data_of(tensor), kernel_dtype(*tensor), padded ? tensor->strides[0] : 0,
          tensor->strides[padded ? 1 : 0]};
}

// Sets everything but the tensors that only one of the two operators has.
inline void set_batch(const rlk_tensor& logp, const rlk_tensor* cu_seqlens, const rlk_tensor* mask,
                      const rlk_tensor* sequence_advantages, PolicyBatch& batch) {
  const bool packed = cu_seqlens != nullptr;
  batch.sequences = packed ? cu_seqlens->shape[0] - 1 : logp.shape[0];
  batch.tokens = logp.shape[packed ? 0 : 1];
  batch.logp = token_tensor(&logp);
  if (packed) batch.cu_seqlens = {sdk::data_of(cu_seqlens), is_i64(*cu_seqlens), cu_seqlens->strides[0]};
  batch.mask = sdk::data_of<const uint8_t>(mask);
  batch.mask_sequence_stride = packed ? 0 : stride_of(mask, 0);
  batch.mask_token_stride = stride_of(mask, packed ? 0 : 1);
  if (sequence_advantages != nullptr) {
    batch.sequence_advantages = {sdk::data_of(sequence_advantages), kernel_dtype(*sequence_advantages),
                                 sequence_advantages->strides[0], 0};
  }
}

// The sequences of a call: rows of logp, or one less than entries of cu_seqlens.
inline int64_t sequences_of(const rlk_tensor& logp, const rlk_tensor* cu_seqlens) {
  return cu_seqlens != nullptr ? cu_seqlens->shape[0] - 1 : logp.shape[0];
}

}  // namespace rlk::cpu
