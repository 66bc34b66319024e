// One call of logp and of its backward, run through the kernels and through the golden reference.
#pragma once

#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

#include "unit/cpu/operator.hpp"

namespace rlk::test {

// What the backward takes, of which the forward's call is a part. Outputs are made as the members say.
struct LogpCase : CallOf<ops::LogpBackward> {
  bool want_lse = true, want_entropy = true;
  bool narrow_logp = false;  // logp in the dtype of logits instead of the accumulator's
  Strides output_strides = Strides::contiguous;
  bool want_grad_bias = false;
  bool in_place = false;
};

using LogpOutputs = Result<CallOf<ops::Logp>>;
using LogpBackwardOutputs = Result<CallOf<ops::LogpBackward>>;

// N rows of V random logits (scale 4) with valid random ids.
LogpCase make_logp_case(Dtype dtype, int64_t rows, int64_t vocab, uint32_t seed, Strides strides = Strides::contiguous);
// Adds lse and entropy of the golden forward, rounded, and random gradients of logp (and of the others on demand).
void add_gradients(LogpCase& c, bool of_lse, bool of_entropy, uint32_t seed);

LogpOutputs run_logp(const LogpCase& c, const cpu::ParallelFor& hook);
LogpBackwardOutputs run_logp_backward(const LogpCase& c, const cpu::ParallelFor& hook);
GoldenResult<ops::Logp> golden_logp(const LogpCase& c);
GoldenResult<ops::LogpBackward> golden_logp_backward(const LogpCase& c);

}  // namespace rlk::test
