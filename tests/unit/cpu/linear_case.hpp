// One call of linear_logp and of its backward, run through the kernels and through the golden reference.
#pragma once

#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include "unit/cpu/operator.hpp"

namespace rlk::test {

// What the backward takes, of which the forward's call is a part. Outputs are made as the members say.
struct LinearCase : CallOf<ops::LinearLogpBackward> {
  bool want_lse = true, want_entropy = true;
  bool narrow_logp = false;  // logp in the dtype of hidden instead of the accumulator's
  Strides output_strides = Strides::contiguous;
  bool want_grad_weight = true, want_grad_bias = true;
  bool wide_grad_hidden = false;  // grad_hidden in the accumulator's dtype

  Dtype dtype() const { return hidden.dtype(); }
  int64_t rows() const { return hidden.shape()[0]; }
  int64_t depth() const { return hidden.shape()[1]; }
  int64_t vocab() const { return weight.shape()[0]; }
};

using LinearOutputs = Result<CallOf<ops::LinearLogp>>;
using LinearGradients = Result<CallOf<ops::LinearLogpBackward>>;

// Random hidden (scale 1) and weight (scale 0.5) with valid random ids.
LinearCase make_linear_case(Dtype dtype, int64_t rows, int64_t vocab, int64_t depth, uint32_t seed,
                            Strides strides = Strides::contiguous);
// Adds lse and entropy of the golden forward, rounded, and random gradients of logp (and of the others on demand).
void add_gradients(LinearCase& c, bool of_lse, bool of_entropy, uint32_t seed);
// Entries [begin, end) of the case's vocabulary as a shard of it.
LinearCase shard_of(const LinearCase& c, int64_t begin, int64_t end);
// The row alone.
LinearCase row_of(const LinearCase& c, int64_t row);

LinearOutputs run_linear(const LinearCase& c, const cpu::ParallelFor& hook);
LinearGradients run_linear_backward(const LinearCase& c, const cpu::ParallelFor& hook);
GoldenResult<ops::LinearLogp> golden_linear(const LinearCase& c);
GoldenResult<ops::LinearLogpBackward> golden_linear_backward(const LinearCase& c);

}  // namespace rlk::test
