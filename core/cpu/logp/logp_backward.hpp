// The gradient of logits and bias from the gradients of logp's outputs, the softmax recomputed from lse.
//
// Cost model: each logit is read once and its gradient written once. Given lse, elements are independent, so the work
// is cut into blocks of columns. With grad_bias a task owns a block of columns for all rows and sums it in row order in
// fp64: no atomics, no partial sums, one order whatever the number of threads.
#pragma once

#include "core/cpu/logp/logp.hpp"

namespace rlk::cpu {

struct LogpBackwardArgs {
  LogpRows rows;             // row_indices strictly increasing over active rows; a violation is a data error of its row
  Dtype dtype = Dtype::f32;  // of logits, bias and grad_logits
  const void* logits = nullptr;
  int64_t row_stride = 0, col_stride = 1;
  const void* bias = nullptr;  // optional
  int64_t bias_stride = 1;
  const void* lse = nullptr;  // accumulator(dtype), as grad_lse, grad_entropy and entropy
  int64_t lse_stride = 1;
  const void* grad_logp = nullptr;
  Dtype grad_logp_dtype = Dtype::f32;
  int64_t grad_logp_stride = 1;
  const void* grad_lse = nullptr;  // optional
  int64_t grad_lse_stride = 1;
  const void* grad_entropy = nullptr;  // optional, together with entropy
  int64_t grad_entropy_stride = 1;
  const void* entropy = nullptr;
  int64_t entropy_stride = 1;
  void* grad_logits = nullptr;  // may be logits itself, with the same strides
  int64_t grad_row_stride = 0, grad_col_stride = 1;
  void* grad_bias = nullptr;  // optional, accumulator(dtype)
  int64_t grad_bias_stride = 1;
  double temperature = 1.0;
  double softcap = 0.0;
  void* workspace = nullptr;  // logp_backward_workspace_bytes, aligned to 8 bytes
};

int64_t logp_backward_workspace_bytes(int64_t logits_rows, bool has_row_indices);

// Returns the data error of the lowest bad row. The logits row of a bad row gets NaN, and grad_bias as a whole.
DataError logp_backward(const LogpBackwardArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
