// The gradient of logits and bias from the gradients of logp's outputs, the softmax recomputed from lse.
//
// Cost model: each logit is read once and its gradient written once. Given lse, elements are independent, so the work
// is cut into blocks of columns. With grad_bias a task owns a block of columns for all rows and sums it in row order in
// fp64: no atomics, no partial sums, one order whatever the number of threads.
#pragma once

#include <rlk/sdk/ops/logp_backward.hpp>

#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {

int64_t logp_backward_workspace_bytes(int64_t logits_rows, bool has_row_indices);

// The registered kernel, for other kernels that need gradients of logits; call.grad_logp may have any floating dtype.
// Returns the data error of the lowest bad row. The logits row of a bad row gets NaN, and grad_bias as a whole.
DataError logp_backward(const CallOf<sdk::ops::LogpBackward>& call, const Context& context);

}  // namespace rlk::cpu
