// The passes of policy_loss and its backward over tokens, of the instruction set in use. Each reads the tokens of a
// chunk in blocks, once.
#pragma once

#include "core/cpu/policy/policy_batch.hpp"

namespace rlk::cpu {

// Of a chunk's tokens. Those up to kSumSelected are metrics in their order, summed over active tokens.
enum PolicySum {
  kSumActive,
  kSumKl,
  kSumMinusX,
  kSumClipped,
  kSumClippedLower,
  kSumBelow,
  kSumAbove,
  kSumRatio,
  kSumEntropy,
  kSumPhi,
  kSumWeight,
  kSumSelected,
  kSumLoss,
  kSumBonus,     // entropies of selected tokens
  kSumUnmasked,  // from here over unmasked tokens: their number, importance weights before division, and squares of
                 // these
  kSumRawWeight,
  kSumRawSquare,
  kPolicySums
};
constexpr int kPolicyMeans = kSumSelected + 1;  // metrics that are sums or means over active tokens
using PolicySums = std::array<double, kPolicySums>;

// A chunk's numbers in the workspace, whichever the pass.
struct PolicyChunkSums {
  PolicySums of;
};

// Fill batch.own, which has to be there: corrections before terms.
void policy_corrections(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook);
void policy_sequence_terms(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook);

// Before the losses, what needs the whole batch. Of one sequence alone:
struct PolicyBatchSums {
  double weight = 0, weights = 0;  // of importance weights before their division, and how many
  int64_t active = 0;
  double advantage = 0, logp = 0;  // of active tokens, where tokens are taken by covariance
  int64_t keys = 0;                // of tokens that may be
};
// The entropies of a sequence's active tokens are written to entropies + its first token, unless that is null.
void policy_batch_sums(const PolicyBatch& batch, PolicyBatchSums* own, double* entropies, const ParallelFor& hook);
void policy_keys(const PolicyBatch& batch, PolicyBatchSums* own, CovarianceKey* keys, const ParallelFor& hook);

// The losses: sums of chunks, and per_token where it is wanted. Without metrics only what the loss needs is summed.
void policy_losses(const PolicyBatch& batch, bool metrics, PolicyChunkSums* sums, const ParallelFor& hook);

// What the gradient of a token's loss is made of.
struct PolicyGradients {
  Array grad_logp, grad_entropy;
  double grad_loss;
  const LossWeights& weights;
  bool own_bonus;   // the bonus is not part of the losses
  double of_bonus;  // its gradient then
};
void policy_gradients(const PolicyBatch& batch, const PolicyGradients& out, PolicyChunkSums* sums,
                      const ParallelFor& hook);

}  // namespace rlk::cpu
