// Importance ratio and KL estimate from logits, and the gradient of the policy's logits: the kernels of logp, and
// ratio_kl between them.
//
// Cost model: the logits of each model are read once; the backward reads the policy's once more and writes its
// gradient. Beyond that, some numbers per token in the workspace.
#pragma once

#include <rlk/sdk/ops/logits_ratio_kl.hpp>
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>

#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/policy/ratio_kl.hpp"

namespace rlk::cpu {

struct LogitsRatioKlArgs {
  LogpRows rows;
  Dtype dtype = Dtype::f32;  // of logits
  const void* logits = nullptr;
  int64_t policy_row_stride = 0, policy_col_stride = 1;
  bool has_reference = false;
  const void* ref_logits = nullptr;
  int64_t ref_row_stride = 0, ref_col_stride = 1;
  Array old_logp;  // optional
  sdk::ops::logits_ratio_kl::Params params;
  Array ratio;
  Array kl, logp, lse, ref_logp;  // optional; lse in accumulator(dtype)
  void* workspace = nullptr;      // logits_ratio_kl_workspace_bytes, aligned to 8 bytes
};
int64_t logits_ratio_kl_workspace_bytes(int64_t n, int64_t vocab);
// Returns the data error of the lowest bad row of either model.
DataError logits_ratio_kl(const LogitsRatioKlArgs& args, const ParallelFor& hook);

struct LogitsRatioKlBackwardArgs {
  LogpRows rows;
  Dtype dtype = Dtype::f32;
  const void* logits = nullptr;
  int64_t row_stride = 0, col_stride = 1;
  Array lse, grad_ratio;
  Array grad_kl;             // optional, with ref_logp
  Array old_logp, ref_logp;  // optional
  sdk::ops::logits_ratio_kl_backward::Params params;
  void* grad_logits = nullptr;  // may be logits itself, with the same strides
  int64_t grad_row_stride = 0, grad_col_stride = 1;
  void* workspace = nullptr;  // logits_ratio_kl_backward_workspace_bytes, aligned to 8 bytes
};
int64_t logits_ratio_kl_backward_workspace_bytes(int64_t n);
DataError logits_ratio_kl_backward(const LogitsRatioKlBackwardArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
