// One call of logp or logp_backward as tensors and options, run through the kernel and through the golden reference.
#pragma once

#include "core/cpu/logp/logp_backward.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {

struct LogpCase {
  Tensor logits, ids, bias, mask, row_indices;
  double temperature = 1.0, softcap = 0.0;
  int64_t ignore_index = -100, vocab_start = 0, global_vocab = 0;
  bool want_lse = true, want_entropy = true;
  bool narrow_logp = false;  // logp in the dtype of logits instead of the accumulator's
  Strides output_strides = Strides::contiguous;
  // The backward's own arguments.
  Tensor lse, grad_logp, grad_lse, grad_entropy, entropy;
  bool want_grad_bias = false;
  bool in_place = false;
};

struct LogpOutputs {
  Tensor logp, lse, entropy;
  cpu::DataError error;
};
struct LogpBackwardOutputs {
  Tensor grad_logits, grad_bias;
  cpu::DataError error;
};

// N rows of V random logits (scale 4) with valid random ids. A fixed number of rows more than N with row_indices.
LogpCase make_logp_case(Dtype dtype, int64_t rows, int64_t vocab, uint32_t seed, Strides strides = Strides::contiguous);
// Adds lse and entropy of the golden forward, rounded, and random gradients of logp (and of the others on demand).
void add_gradients(LogpCase& c, bool of_lse, bool of_entropy, uint32_t seed);

LogpOutputs run_logp(LogpCase& c, const cpu::ParallelFor& hook);
LogpBackwardOutputs run_logp_backward(LogpCase& c, const cpu::ParallelFor& hook);
golden::LogpCall golden_call(const LogpCase& c);
golden::LogpBackwardCall golden_backward_call(const LogpCase& c);

}  // namespace rlk::test
