// One call of policy_loss or its backward as tensors and options, run through the kernel and the golden reference; and
// the same batch as plain matrices, for formulas written as the trainers publish them.
#pragma once

#include <rlk/sdk/ops/policy_loss.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include <functional>
#include <vector>

#include "unit/cpu/trainer_rows.hpp"

namespace rlk::test {

// Every output is asked for.
struct PolicyCase : CallOf<ops::PolicyLoss> {
  PolicyCase() { per_token = metrics = wanted(); }
  Tensor grad_per_token;
  ops::policy_loss_backward::ClampGradient clamp_gradient = ops::policy_loss_backward::ClampGradient::zero;
  double grad_loss = 1.0;
};

// [sequences, tokens] random tensors of every kind, no mask; ratios from 0.2 to 5.
PolicyCase make_policy_case(Dtype dtype, int64_t sequences, int64_t tokens, uint32_t seed,
                            Strides strides = Strides::contiguous);
// [1, 1]: one token that has nothing else.
PolicyCase one_token(double logp, double old_logp, double advantage);
// Masks every third token and the whole last sequence, and puts NaN wherever a masked token has a number.
void mask_some(PolicyCase& c);
// The same tokens as [S] with cu_seqlens.
PolicyCase packed_of(const PolicyCase& c);

struct PolicyOutputs {
  double loss = 0;
  Tensor per_token;
  std::vector<double> metrics;
  cpu::DataError error;
};
PolicyOutputs run_policy_loss(const PolicyCase& c, const cpu::ParallelFor& hook = cpu::serial_parallel());
CallOf<ops::PolicyLossBackward> backward_call(const PolicyCase& c);
Result<CallOf<ops::PolicyLossBackward>> run_policy_loss_backward(const PolicyCase& c,
                                                                 const cpu::ParallelFor& hook = cpu::serial_parallel());

// ---- formulas of the trainers -------------------------------------------------------------------------------------

// A batch as a trainer has it. lp is what the gradient is taken of; sg is the same numbers with the gradient stopped.
struct TrainerBatch {
  Matrix lp, sg, old, ref, sampled, mask, advantage, entropy;
  size_t sequences() const { return lp.size(); }
  size_t tokens() const { return lp[0].size(); }
};
TrainerBatch trainer_batch(const PolicyCase& c);

// That loss and gradient of the kernel and of golden are those of the published formula, the gradient by central
// differences in lp with sg held, and that the packed layout gives the same.
void expect_trainer(const PolicyCase& c, const std::function<double(const TrainerBatch&)>& published);

double clip(double x, double low, double high);
double sigmoid(double x);
// A matrix from a function of every place; masked places are 0 and the function is not called.
Matrix each(const TrainerBatch& batch, const std::function<double(size_t b, size_t t)>& f);

}  // namespace rlk::test
