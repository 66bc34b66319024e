// Sequences are walked in parallel and combined in their order: the bits do not depend on the number of threads.
#include "core/cpu/policy/policy_terms.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

constexpr double kLeastMean = 1e-8;      // weights of a smaller mean are not divided by it
constexpr double kQuantileSlack = 1e-6;  // of a place in the order: 1 - q is rounded

bool needs_mean(const PolicyParams& params) {
  return params.rollout_is_normalize == RolloutIsNormalize::on && params.rollout_is_mean == 0;
}
bool needs_quantile(const PolicyParams& params) {
  return params.top_entropy_quantile < 1;
}

// The least entropy that the quantile keeps; NaN when there is one.
double quantile(double share, double* begin, double* end) {
  const auto n = static_cast<double>(end - begin);
  if (begin == end || std::any_of(begin, end, [](double e) { return std::isnan(e); })) return std::nan("");
  const double place = std::clamp(std::ceil((1 - share) * (n - 1) - kQuantileSlack), 0.0, n - 1);
  double* const at = begin + static_cast<int64_t>(place);
  std::nth_element(begin, at, end);
  return *at;
}

// Sums of sequences are added in their order, as the declaration has it: what is taken depends on their last bits.
void choose_by_covariance(PolicyBatch& batch, PolicyBatchSums* own, CovarianceKey* keys, const ParallelFor& hook) {
  CovarianceTerms& terms = batch.terms.covariance;
  double advantage = 0, logp = 0;
  int64_t active = 0;
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    advantage += own[b].advantage;
    logp += own[b].logp;
    active += own[b].active;
  }
  terms.mean_advantage = advantage / static_cast<double>(active);
  terms.mean_logp = logp / static_cast<double>(active);
  policy_keys(batch, own, keys, hook);
  int64_t count = 0;
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    std::copy_n(keys + batch.first_token(b), own[b].keys, keys + count);
    count += own[b].keys;
  }
  terms.last = last_taken(batch.params, active, keys, keys + count);
}

// What depends on all sequences: the mean of the weights, the quantile of the entropies, the choice by covariance.
void find_batch_terms(PolicyBatch& batch, PolicyBatchSums* own, const ParallelFor& hook) {
  const PolicyParams& params = batch.params;
  const bool by_quantile = needs_quantile(params), by_covariance = takes_by_covariance(params.kind);
  double mean = params.rollout_is_mean;
  if (needs_mean(params) || by_quantile || by_covariance) {
    auto* entropies = reinterpret_cast<double*>(own + batch.sequences.count);
    policy_batch_sums(batch, own, by_quantile ? entropies : nullptr, hook);
    double weight = 0, weights = 0;
    int64_t active = 0;
    for (int64_t b = 0; b < batch.sequences.count; ++b) {
      if (by_quantile) std::copy_n(entropies + batch.first_token(b), own[b].active, entropies + active);
      active += own[b].active;
      weight += own[b].weight;
      weights += own[b].weights;
    }
    if (needs_mean(params)) mean = weight / weights;  // of no weights NaN, which divides nothing
    if (by_quantile) {
      batch.rules.selects = true;
      batch.rules.least_entropy = quantile(params.top_entropy_quantile, entropies, entropies + active);
    }
    // The keys may lie over the entropies, which are not needed any more.
    if (by_covariance) choose_by_covariance(batch, own, reinterpret_cast<CovarianceKey*>(entropies), hook);
  }
  if (params.rollout_is_normalize == RolloutIsNormalize::on && mean > kLeastMean) batch.terms.weight_divisor = mean;
}

// A workspace: one array after the other, each of numbers of eight bytes.
struct PolicyWorkspace {
  PolicyWorkspace(void* memory, const Sequences& sequences)
      : chunks(static_cast<int64_t*>(memory)),
        own(reinterpret_cast<PolicySequence*>(chunks + sequences.count + 1)),
        sums(reinterpret_cast<PolicyChunkSums*>(own + sequences.count)),
        of_batch(reinterpret_cast<PolicyBatchSums*>(sums + PolicyBatch::most_chunks(sequences))) {}

  int64_t* chunks;
  PolicySequence* own;
  PolicyChunkSums* sums;
  PolicyBatchSums* of_batch;
};

}  // namespace

int64_t policy_workspace_bytes(const PolicyParams& params, const Sequences& sequences) {
  const size_t of_token = takes_by_covariance(params.kind) ? sizeof(CovarianceKey)
                          : needs_quantile(params)         ? sizeof(double)
                                                           : 0;
  const auto bytes = [](int64_t count, size_t each) { return count * static_cast<int64_t>(each); };
  return bytes(sequences.count + 1, sizeof(int64_t)) + bytes(sequences.count, sizeof(PolicySequence)) +
         bytes(PolicyBatch::most_chunks(sequences), sizeof(PolicyChunkSums)) +
         bytes(sequences.count, sizeof(PolicyBatchSums)) + bytes(sequences.elements(), of_token);
}

PolicyChunkSums* find_policy_terms(PolicyBatch& batch, bool counts, const Context& context) {
  const PolicyWorkspace workspace(context.workspace, batch.sequences);
  batch.number_chunks(workspace.chunks);
  const bool sequence_terms = counts || batch.rules.has_terms;
  if (sequence_terms || batch.rules.has_corrections) {
    batch.own = workspace.own;
    std::fill_n(batch.own, batch.sequences.count, PolicySequence());
  }
  if (batch.rules.has_corrections) policy_corrections(batch, workspace.sums, context.parallel);
  find_batch_terms(batch, workspace.of_batch, context.parallel);
  if (sequence_terms) policy_sequence_terms(batch, workspace.sums, context.parallel);
  return workspace.sums;
}

}  // namespace rlk::cpu
