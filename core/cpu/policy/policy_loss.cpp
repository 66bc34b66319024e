// The policy loss of a batch, its metrics, and its gradient, in fp64: one pass over memory, and one before it for each
// of what depends on whole sequences, on the batch, and in the backward on the number of tokens that a mask leaves.
//
// Sums of chunks of sequences are added in their order: the bits do not depend on the number of threads, and those of
// per_token on the own sequence alone, unless the parameters make it depend on the batch.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include <algorithm>
#include <limits>

#include "core/cpu/policy/policy_terms.hpp"
#include "core/cpu/simd/data_error.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {

namespace {

using Forward = PolicyCall;
using Backward = CallOf<sdk::ops::PolicyLossBackward>;

constexpr int kMetrics = RLK_POLICY_LOSS_N_METRICS;
constexpr int kMeans = kPolicyMeans;  // metrics that are sums or means over active tokens; those after them are not

PolicySums sums_of_sequence(const PolicyBatch& batch, const PolicyChunkSums* chunks, int64_t b) {
  PolicySums sums{};
  for (int64_t chunk = batch.chunks[b]; chunk < batch.chunks[b + 1]; ++chunk) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += chunks[chunk].of[i];
  }
  return sums;
}

double rejected_share(const PolicySums& sums) {
  return sums[kSumUnmasked] > 0 ? (sums[kSumUnmasked] - sums[kSumActive]) / sums[kSumUnmasked] : 0.0;
}

// Means over the sequence's active tokens, and the share of tokens that were rejected.
void put_sequence_metrics(const Array& output, int64_t b, const PolicySums& sums) {
  if (!output.present()) return;
  const double active = sums[kSumActive];
  output.put(b, 0, active);
  for (int i = 1; i < kMeans; ++i) output.put(b, i, active > 0 ? sums[static_cast<size_t>(i)] / active : 0.0);
  output.put(b, kMeans, rejected_share(sums));
}

void put_batch_metrics(const Array& output, const PolicySums& sums, double weight, double weights) {
  double metrics[kMetrics];
  std::copy_n(sums.begin(), kMeans, metrics);
  for (int i = 1; i < kMeans && metrics[0] > 0; ++i) metrics[i] /= metrics[0];
  metrics[kMeans] = rejected_share(sums);
  metrics[kMeans + 1] = weights > 0 ? weight / weights : 0;
  // In this order nothing is beyond fp64 where the answer is not.
  const double square = sums[kSumRawSquare], mean = sums[kSumRawWeight] / sums[kSumUnmasked];
  metrics[kMeans + 2] = square == 0 ? 0 : mean * (sums[kSumRawWeight] / square);
  for (int i = 0; i < kMetrics; ++i) output.put(i, metrics[i]);
}

const PolicyParams& params_of(const Forward& call) {
  return call.params;
}
PolicyParams params_of(const Backward& call) {
  return sdk::forward_of<Forward>(call).params;
}

template <class Call>
int64_t workspace_bytes(const Call& call) {
  return policy_workspace_bytes(params_of(call), sequences_of(call.logp, call.cu_seqlens));
}

DataError policy_loss(const Forward& call, const Context& context) {
  PolicyBatch batch(call, 0);
  const Sequences& sequences = batch.sequences;
  if (const DataError error = sequences.error(); error.kind != kNoDataError) return all_nan(call, error);

  PolicyChunkSums* const chunks = find_policy_terms(batch, false, context);
  policy_losses(batch, call.metrics.present() || call.sequence_metrics.present(), chunks, context.parallel);

  PolicySums all{};
  double weight = 0, weights = 0;
  LossWeights loss_weights = batch.rules.weights;
  for (int64_t b = 0; b < sequences.count; ++b) {
    const PolicySums own = sums_of_sequence(batch, chunks, b);
    put_sequence_metrics(call.sequence_metrics, b, own);
    loss_weights.add_sequence(own[kSumActive]);
    const bool once = batch.rules.has_sequence_weights() && own[kSumUnmasked] > 0;
    weight += once ? batch.own_of(b).weight : own[kSumRawWeight];
    weights += once ? 1 : own[kSumUnmasked];
    for (size_t i = 0; i < all.size(); ++i) all[i] += own[i];
  }
  double loss = 0;
  for (int64_t b = 0; b < sequences.count; ++b) {
    const PolicySums own = sums_of_sequence(batch, chunks, b);
    loss += loss_weights.weighted(own[kSumLoss], own[kSumActive]);
  }
  if (batch.rules.has_own_bonus) {
    loss -= batch.rules.entropy_coefficient * all[kSumBonus] / batch.rules.entropy_divisor(all[kSumSelected]);
  }
  call.loss.put(0, loss);
  if (call.metrics.present()) put_batch_metrics(call.metrics, all, weight, weights);
  return {};
}

DataError policy_loss_backward(const Backward& call, const Context& context) {
  const Forward forward = sdk::forward_of<Forward>(call);
  PolicyBatch batch(forward, gradient_at_bound(call.params.clamp_gradient));
  batch.grad_per_token = call.grad_per_token;
  const Sequences& sequences = batch.sequences;
  if (const DataError error = sequences.error(); error.kind != kNoDataError) return all_nan(call, error);
  const bool own_bonus = batch.rules.has_own_bonus && call.grad_entropy.present();
  LossWeights loss_weights = batch.rules.weights;
  const bool needs_counts = loss_weights.needs_counts() || own_bonus;
  PolicyChunkSums* const chunks = find_policy_terms(batch, needs_counts, context);
  double selected = 0;
  for (int64_t b = 0; b < sequences.count && needs_counts; ++b) {
    selected += batch.own[b].selected;
    loss_weights.add_sequence(batch.own[b].active);
  }
  const double grad_loss = call.grad_loss.get(0);
  const double of_bonus = grad_loss / batch.rules.entropy_divisor(selected);
  policy_gradients(batch, {call.grad_logp, call.grad_entropy, grad_loss, loss_weights, own_bonus, of_bonus}, chunks,
                   context.parallel);
  return {};
}

}  // namespace

RLK_CPU_KERNEL(PolicyLoss, .run = policy_loss, .operations = per_input_element<200>,
               .workspace_bytes = workspace_bytes<Forward>);
RLK_CPU_KERNEL(PolicyLossBackward, .run = policy_loss_backward, .operations = per_input_element<300>,
               .workspace_bytes = workspace_bytes<Backward>);

}  // namespace rlk::cpu
