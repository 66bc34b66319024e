// The policy loss of a batch, forward and backward. One number per token: plain fp64, sequences in parallel.
//
// A sequence is one task's, summed in its order, and the sums of sequences are added in their order: the bits do not
// depend on the number of threads, and those of per_token on the own sequence alone, unless combines_sequences().
#pragma once

#include "core/cpu/policy/policy_terms.hpp"

namespace rlk::cpu {

constexpr int kPolicyMetrics = 14;

struct PolicyLossArgs {
  PolicyBatch batch;
  void* loss = nullptr;  // [1] of scalar_dtype
  TokenOutput per_token;
  void* metrics = nullptr;  // [kPolicyMetrics] of scalar_dtype, optional
  int64_t metrics_stride = 1;
  Dtype scalar_dtype = Dtype::f32;
  void* workspace = nullptr;  // policy_loss_workspace_bytes, aligned to 8 bytes
};
// `tokens` of all sequences, here and below.
int64_t policy_loss_workspace_bytes(const PolicyOptions& options, int64_t sequences, int64_t tokens);
// A data error makes every output NaN.
DataError policy_loss(const PolicyLossArgs& args, const ParallelFor& hook);

struct PolicyLossBackwardArgs {
  PolicyBatch batch;
  double grad_loss = 0;
  TokenTensor grad_per_token;  // optional
  TokenOutput grad_logp;
  TokenOutput grad_entropy;   // optional
  void* workspace = nullptr;  // policy_loss_backward_workspace_bytes, aligned to 8 bytes
};
int64_t policy_loss_backward_workspace_bytes(const PolicyOptions& options, int64_t sequences, int64_t tokens);
DataError policy_loss_backward(const PolicyLossBackwardArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
