// GRPO from logits and rewards, forward and backward: the kernels of logp over the tokens of the batch, and plain fp64
// between them. The only scratch is a few numbers per token; the logits are read once, their gradient written once.
#pragma once

#include "core/cpu/policy/policy_kinds.hpp"
#include "core/cpu/simd/element.hpp"

namespace rlk::cpu {

// [B, T] or [B, T, V].
struct GrpoTensor {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t strides[3] = {0, 0, 1};

  bool present() const { return data != nullptr; }
  double at(int64_t b, int64_t t) const { return load_element(data, dtype, b * strides[0] + t * strides[1]); }
  void put(int64_t b, int64_t t, double value) const {
    if (present()) store_element(data, dtype, b * strides[0] + t * strides[1], value);
  }
};

// The inputs and parameters that grpo_loss and its backward share.
struct GrpoBatch {
  int64_t sequences = 0, tokens = 0, vocab = 0;
  GrpoTensor logits;
  const void* ids = nullptr;
  bool ids_are_i64 = true;
  int64_t ids_strides[2] = {0, 1};
  GrpoTensor old_logp;
  void* rewards = nullptr;  // accumulator of the logits' dtype
  int64_t rewards_stride = 1;
  const uint8_t* mask = nullptr;  // optional
  int64_t mask_strides[2] = {0, 1};
  const void* group_boundaries = nullptr;  // optional, [groups + 1]
  bool boundaries_are_i64 = true;
  int64_t boundaries_stride = 1;
  int64_t groups = 0;

  int64_t samples_per_prompt = 0;  // 0: one group
  bool unbiased = false, additive_eps = false;
  double eps = 1e-6;
  double clip_low = 0.2, clip_high = 0.2, beta = 0.0, temperature = 1.0;
  int64_t ignore_index = -100;

  int64_t id(int64_t b, int64_t t) const {
    const int64_t at = b * ids_strides[0] + t * ids_strides[1];
    return ids_are_i64 ? static_cast<const int64_t*>(ids)[at] : static_cast<const int32_t*>(ids)[at];
  }
  bool is_active(int64_t b, int64_t t) const {
    return (mask == nullptr || mask[b * mask_strides[0] + t * mask_strides[1]] != 0) && id(b, t) != ignore_index;
  }
};

struct GrpoLossArgs {
  GrpoBatch batch;
  GrpoTensor ref_logits;  // optional, with beta 0
  void* loss = nullptr;
  void* policy_loss = nullptr;  // optional, as kl; [1] of the accumulator's dtype
  void* kl = nullptr;
  GrpoTensor lse, logp, ref_logp;  // optional
  void* advantages = nullptr;      // optional
  int64_t advantages_stride = 1;
  void* workspace = nullptr;  // grpo_loss_workspace_bytes, aligned to 8 bytes
};
int64_t grpo_loss_workspace_bytes(int64_t sequences, int64_t tokens, int64_t vocab);
DataError grpo_loss(const GrpoLossArgs& args, const ParallelFor& hook);

struct GrpoLossBackwardArgs {
  GrpoBatch batch;
  GrpoTensor lse, ref_logp;  // ref_logp: optional, with beta 0
  double grad_loss = 0;
  GrpoTensor grad_logits;     // may be logits itself
  void* workspace = nullptr;  // grpo_loss_backward_workspace_bytes, aligned to 8 bytes
};
int64_t grpo_loss_backward_workspace_bytes(int64_t sequences, int64_t tokens);
DataError grpo_loss_backward(const GrpoLossBackwardArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
