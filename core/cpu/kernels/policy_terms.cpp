// Sequences are walked in parallel and combined in their order: the bits do not depend on the number of threads.
#include "core/cpu/kernels/policy_terms.hpp"

#include <algorithm>

namespace rlk::cpu {
namespace {

constexpr int64_t kGrainTokens = 256;
constexpr double kLeastMean = 1e-8;  // weights of a smaller mean are not divided by it

struct SequenceTerms {
  double weight_sum = 0, weight_count = 0;
};

bool needs_mean(const PolicyOptions& options) {
  return options.rollout_is_normalize && options.rollout_is_mean == 0;
}

}  // namespace

bool combines_sequences(const PolicyOptions& options) {
  return needs_mean(options);
}

int64_t policy_terms_workspace_bytes(int64_t sequences) {
  return sequences * static_cast<int64_t>(sizeof(SequenceTerms));
}

int64_t policy_grain(const PolicyBatch& batch) {
  const int64_t tokens = batch.packed() ? batch.tokens / std::max<int64_t>(batch.sequences, 1) : batch.tokens;
  return std::max<int64_t>(1, kGrainTokens / std::max<int64_t>(tokens, 1));
}

PolicyTerms policy_terms(const PolicyBatch& batch, bool wants_mean, void* workspace, const ParallelFor& hook) {
  const PolicyOptions& options = batch.options;
  PolicyTerms terms;
  if (needs_mean(options) || wants_mean) {
    auto* own = static_cast<SequenceTerms*>(workspace);
    parallel_for(hook, batch.sequences, policy_grain(batch), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const PolicySequence sequence(batch, b);
        own[b] = {};
        for (int64_t place = batch.begin(b); place < batch.end(b); ++place) {
          if (!sequence.is_unmasked(place)) continue;
          // A sequence has one weight, which counts once.
          if (is_of_sequence(options.rollout_is) && own[b].weight_count > 0) break;
          own[b].weight_sum += sequence.rollout_weight(place);
          own[b].weight_count += 1;
        }
      }
    });
    SequenceTerms all;
    for (int64_t b = 0; b < batch.sequences; ++b) {
      all.weight_sum += own[b].weight_sum;
      all.weight_count += own[b].weight_count;
    }
    terms.mean_weight = all.weight_count > 0 ? all.weight_sum / all.weight_count : 0;
  }
  if (options.rollout_is_normalize) {
    const double mean = options.rollout_is_mean > 0 ? options.rollout_is_mean : terms.mean_weight;
    if (mean > kLeastMean) terms.weight_divisor = mean;
  }
  return terms;
}

}  // namespace rlk::cpu
