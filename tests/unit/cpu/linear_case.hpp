// One call of linear_logp or linear_logp_backward as tensors and options, run through kernel and golden reference.
#pragma once

#include "core/cpu/linear/linear_logp_backward.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {

struct LinearCase {
  Tensor hidden, weight, ids, bias, mask;
  double temperature = 1.0, softcap = 0.0;
  int64_t ignore_index = -100, vocab_start = 0, global_vocab = 0;
  bool want_lse = true, want_entropy = true;
  bool narrow_logp = false;  // logp in the dtype of hidden instead of the accumulator's
  Strides output_strides = Strides::contiguous;
  // The backward's own arguments.
  Tensor lse, grad_logp, grad_lse, grad_entropy, entropy;
  bool want_grad_weight = true, want_grad_bias = true;
  bool wide_grad_hidden = false;  // grad_hidden in the accumulator's dtype

  Dtype dtype() const { return hidden.dtype(); }
  int64_t rows() const { return hidden.shape()[0]; }
  int64_t depth() const { return hidden.shape()[1]; }
  int64_t vocab() const { return weight.shape()[0]; }
};

struct LinearOutputs {
  Tensor logp, lse, entropy;
  cpu::DataError error;
};
struct LinearGradients {
  Tensor hidden, weight, bias;
  cpu::DataError error;
};

// Random hidden (scale 1) and weight (scale 0.5) with valid random ids.
LinearCase make_linear_case(Dtype dtype, int64_t rows, int64_t vocab, int64_t depth, uint32_t seed,
                            Strides strides = Strides::contiguous);
// Adds lse and entropy of the golden forward, rounded, and random gradients of logp (and of the others on demand).
void add_gradients(LinearCase& c, bool of_lse, bool of_entropy, uint32_t seed);
// Entries [begin, end) of the case's vocabulary as a shard of it.
LinearCase shard_of(const LinearCase& c, int64_t begin, int64_t end);
// The row alone.
LinearCase row_of(const LinearCase& c, int64_t row);

LinearOutputs run_linear(LinearCase& c, const cpu::ParallelFor& hook);
LinearGradients run_linear_backward(LinearCase& c, const cpu::ParallelFor& hook);
// Every output is asked for.
golden::Answer golden_linear(const LinearCase& c);
golden::Answer golden_linear_backward(const LinearCase& c);

}  // namespace rlk::test
