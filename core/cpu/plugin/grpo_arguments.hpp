// The arguments that grpo_loss and its backward share.
#pragma once

#include "core/cpu/plugin/arguments.hpp"
#include "core/cpu/policy/grpo_loss.hpp"

namespace rlk::cpu {

inline GrpoTensor grpo_tensor(const rlk_tensor* tensor) {
  if (tensor == nullptr) return {};
  GrpoTensor result{sdk::data_of(tensor), kernel_dtype(*tensor)};
  for (int32_t axis = 0; axis < tensor->ndim && axis < 3; ++axis) result.strides[axis] = tensor->strides[axis];
  return result;
}

template <class Params>
GrpoBatch grpo_batch(const Params& params, const rlk_tensor& logits, const rlk_tensor& ids, const rlk_tensor& rewards,
                     const rlk_tensor* mask, const rlk_tensor* group_boundaries) {
  GrpoBatch batch;
  batch.sequences = ids.shape[0];
  batch.tokens = ids.shape[1];
  batch.vocab = logits.shape[2];
  batch.logits = grpo_tensor(&logits);
  batch.ids = sdk::data_of(&ids);
  batch.ids_are_i64 = is_i64(ids);
  batch.rewards = sdk::data_of(&rewards);
  batch.rewards_stride = rewards.strides[0];
  batch.mask = sdk::data_of<const uint8_t>(mask);
  for (int32_t axis = 0; axis < 2; ++axis) {
    batch.ids_strides[axis] = ids.strides[axis];
    batch.mask_strides[axis] = stride_of(mask, axis);
  }
  if (group_boundaries != nullptr) {
    batch.group_boundaries = sdk::data_of(group_boundaries);
    batch.boundaries_are_i64 = is_i64(*group_boundaries);
    batch.boundaries_stride = group_boundaries->strides[0];
    batch.groups = group_boundaries->shape[0] - 1;
  }
  batch.samples_per_prompt = params.samples_per_prompt;
  batch.unbiased = params.std == 0;
  batch.additive_eps = params.eps_mode == 0;
  batch.eps = params.eps;
  batch.clip_low = params.clip_low;
  batch.clip_high = params.clip_high;
  batch.beta = params.beta;
  batch.temperature = params.temperature;
  batch.ignore_index = params.ignore_index;
  return batch;
}

}  // namespace rlk::cpu
