// The clipped squared error of a value function, per token and reduced, and its gradient. One number per token, in
// fp64.
//
// Every sequence is summed in token order, and the sequences in their order, so that bits do not depend on threads.
#pragma once

#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

enum class Aggregation : int64_t { token_mean, token_sum, seq_mean_token_mean, seq_mean_token_sum, none };

struct AggregationOptions {
  Aggregation kind = Aggregation::token_mean;
  double denominator = 0;  // 0: the natural one
  bool exclude_empty_sequences = false;
  double seq_denominator_floor = 1;
};

struct ValueLossArgs {
  Sequences sequences;
  Array values, returns;
  Array old_values;  // optional, with clip_eps
  double clip_eps = 0;
  Mask mask;  // optional
  AggregationOptions aggregation;
  Array loss;                       // [1]
  Array token_loss, clip_fraction;  // optional
  void* workspace = nullptr;        // value_loss_workspace_bytes, aligned to 8 bytes
};
int64_t value_loss_workspace_bytes(int64_t sequences);
// Returns the data error of cu_seqlens.
DataError value_loss(const ValueLossArgs& args, const ParallelFor& hook);

struct ValueLossBackwardArgs {
  Sequences sequences;
  Array values, returns;
  Array grad_loss;        // [1]
  Array grad_token_loss;  // optional
  Array old_values;       // optional, with clip_eps
  double clip_eps = 0;
  Mask mask;  // optional
  AggregationOptions aggregation;
  Array grad_values;
  void* workspace = nullptr;  // value_loss_workspace_bytes, aligned to 8 bytes
};
DataError value_loss_backward(const ValueLossBackwardArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
