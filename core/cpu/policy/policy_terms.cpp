// Sequences are walked in parallel and combined in their order: the bits do not depend on the number of threads.
#include "core/cpu/policy/policy_terms.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
namespace {

constexpr int64_t kGrainTokens = 256;
constexpr double kLeastMean = 1e-8;      // weights of a smaller mean are not divided by it
constexpr double kQuantileSlack = 1e-6;  // of a place in the order: 1 - q is rounded

struct SequenceTerms {
  double weight_sum = 0, weight_count = 0;
  int64_t active = 0, selected = 0;
};

bool needs_mean(const PolicyOptions& options) {
  return options.rollout_is_normalize && options.rollout_is_mean == 0;
}
bool needs_quantile(const PolicyOptions& options) {
  return options.top_entropy_quantile < 1;
}

// Of the sequence alone. Its active tokens' entropies begin at `entropies`, if that is not null.
SequenceTerms terms_of(const PolicyBatch& batch, int64_t b, double* entropies) {
  const PolicySequence sequence(batch, b);
  const bool one_weight = is_of_sequence(batch.options.rollout_is);  // which counts once
  SequenceTerms own;
  for (int64_t place = batch.begin(b); place < batch.end(b); ++place) {
    if (!sequence.is_unmasked(place)) continue;
    if (!one_weight || own.weight_count == 0) {
      own.weight_sum += sequence.rollout_weight(place);
      own.weight_count += 1;
    }
    if (!sequence.is_active(place)) continue;
    if (entropies != nullptr) entropies[own.active] = sequence.entropy(place);
    own.selected += sequence.is_selected(place) ? 1 : 0;
    ++own.active;
  }
  return own;
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

}  // namespace

bool combines_sequences(const PolicyOptions& options) {
  return needs_mean(options) || needs_quantile(options);
}

int64_t policy_terms_workspace_bytes(const PolicyOptions& options, int64_t sequences, int64_t tokens) {
  const int64_t entropies = needs_quantile(options) ? tokens : 0;
  return sequences * static_cast<int64_t>(sizeof(SequenceTerms)) + entropies * static_cast<int64_t>(sizeof(double));
}

int64_t policy_grain(const PolicyBatch& batch) {
  const int64_t tokens = batch.packed() ? batch.tokens / std::max<int64_t>(batch.sequences, 1) : batch.tokens;
  return std::max<int64_t>(1, kGrainTokens / std::max<int64_t>(tokens, 1));
}

double entropy_divisor(const PolicyOptions& options, double selected) {
  return options.entropy_denominator > 0 ? options.entropy_denominator : std::max(selected, 1.0);
}

PolicyTerms policy_terms(const PolicyBatch& given, PolicyTermsWanted wanted, void* workspace, const ParallelFor& hook) {
  PolicyBatch batch = given;
  const PolicyOptions& options = batch.options;
  PolicyTerms& terms = batch.terms;
  terms.selects = options.least_entropy > 0;
  terms.least_entropy = options.least_entropy;
  const bool by_quantile = needs_quantile(options);
  if (needs_mean(options) || by_quantile || wanted.mean_weight || wanted.selected) {
    auto* own = static_cast<SequenceTerms*>(workspace);
    auto* entropies = reinterpret_cast<double*>(own + batch.sequences);
    parallel_for(hook, batch.sequences, policy_grain(batch), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        own[b] = terms_of(batch, b, by_quantile ? entropies + batch.offset(b) : nullptr);
      }
    });
    SequenceTerms all;
    for (int64_t b = 0; b < batch.sequences; ++b) {
      if (by_quantile) std::copy_n(entropies + batch.offset(b), own[b].active, entropies + all.active);
      all.weight_sum += own[b].weight_sum;
      all.weight_count += own[b].weight_count;
      all.active += own[b].active;
      all.selected += own[b].selected;
    }
    terms.mean_weight = all.weight_count > 0 ? all.weight_sum / all.weight_count : 0;
    if (by_quantile) {
      double* const end = entropies + all.active;
      const double least = quantile(options.top_entropy_quantile, entropies, end);
      all.selected = std::count_if(entropies, end, [least](double e) { return e >= least; });
      terms.selects = true;
      terms.least_entropy = least;
    }
    terms.selected = static_cast<double>(all.selected);
  }
  if (options.rollout_is_normalize) {
    const double mean = options.rollout_is_mean > 0 ? options.rollout_is_mean : terms.mean_weight;
    if (mean > kLeastMean) terms.weight_divisor = mean;
  }
  return terms;
}

}  // namespace rlk::cpu
