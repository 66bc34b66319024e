// Gradients of hidden, weight and bias from those of linear_logp's outputs, the scores computed anew.
//
// Cost model: three products of 2 N V D floating-point operations each (scores, grad_hidden, grad_weight; two without
// grad_weight). The gradients of the scores exist for one batch of rows and one chunk of the vocabulary at a time, some
// MiB; the sums of grad_hidden of a batch are kept in fp64. No atomics and no partial sums: every element has one owner
// per chunk and one order of summation, whatever the number of threads. A row of grad_hidden depends on that row alone.
#pragma once

#include "core/cpu/linear/linear_gradient.hpp"
#include "core/cpu/linear/linear_logp.hpp"

namespace rlk::cpu {

// A number per row; data is null where an optional one is absent.
struct LinearRowInput {
  const void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t stride = 1;
};

struct LinearLogpBackwardArgs {
  LogpRows rows;             // without row_indices; logits_rows is n
  Dtype dtype = Dtype::f32;  // of hidden, weight and bias
  int64_t depth = 0;         // D
  LinearMatrix hidden, weight;
  const void* bias = nullptr;  // optional, [V]
  int64_t bias_stride = 1;
  LinearRowInput lse, grad_logp;
  LinearRowInput grad_lse, grad_entropy, entropy;  // optional; the last two together
  LinearGradMatrix grad_hidden;
  LinearGradMatrix grad_weight;  // optional
  void* grad_bias = nullptr;     // optional, accumulator(dtype)
  int64_t grad_bias_stride = 1;
  double temperature = 1.0;
  double softcap = 0.0;
  void* workspace = nullptr;  // linear_logp_backward_workspace_bytes, aligned to 8 bytes
};

int64_t linear_logp_backward_workspace_bytes(const LinearSizes& sizes, bool has_grad_bias);

// As linear_logp. The grad_hidden of a row in error is NaN, and grad_weight and grad_bias as a whole.
LinearStatus linear_logp_backward(const LinearLogpBackwardArgs& args, const ParallelFor& hook, DataError* error);

}  // namespace rlk::cpu
