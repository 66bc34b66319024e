// One block of one row of the gradient: the unit that is compiled for every instruction set. Internal to the kernels.
#pragma once

#include "core/cpu/logp/logp_block.hpp"

namespace rlk::cpu {

// What one output row contributes.
struct RowGradient {
  double lse, grad_logp, grad_lse, grad_entropy, entropy;
  int64_t target;  // column, or outside the tensor
};

// Writes the gradient of columns [begin, end) to grad_row (same dtype as logits) and adds it to bias_sums[end - begin]
// if given; the caller then goes on with the same columns of the next row, row_stride elements away. True when a score
// among them is not -inf. `row` and `grad_row` may be the same memory.
bool gradient_block(const Scores& scores, const void* row, int64_t row_stride, int64_t begin, int64_t end,
                    const RowGradient& gradient, void* grad_row, int64_t grad_stride, double* bias_sums);

}  // namespace rlk::cpu
