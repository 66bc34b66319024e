// Sequences are walked in parallel and combined in their order: the bits do not depend on the number of threads.
#include "core/cpu/policy/policy_terms.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

constexpr double kLeastMean = 1e-8;      // weights of a smaller mean are not divided by it
constexpr double kQuantileSlack = 1e-6;  // of a place in the order: 1 - q is rounded

struct SequenceTerms {
  double weight_sum = 0, weight_count = 0;
  double token_weight_sum = 0, token_square_sum = 0, unmasked = 0;
  int64_t active = 0, selected = 0;
  double advantage_sum = 0, logp_sum = 0;  // of active tokens, where tokens are taken by covariance
  int64_t keys = 0;                        // of tokens that may be
};

bool needs_mean(const PolicyParams& params) {
  return params.rollout_is_normalize == RolloutIsNormalize::on && params.rollout_is_mean == 0;
}
bool needs_quantile(double top_entropy_quantile) {
  return top_entropy_quantile < 1;
}

// Of the sequence alone. Its active tokens' entropies begin at `entropies`, if that is not null.
SequenceTerms terms_of(const PolicyBatch& batch, int64_t b, double* entropies) {
  const PolicySequence sequence(batch, b);
  const RolloutIs mode = batch.call.params.rollout_is;
  const bool one_weight = mode == RolloutIs::sequence_truncate || mode == RolloutIs::sequence_mask;  // it counts once
  SequenceTerms own;
  for (int64_t t = 0; t < sequence.tokens(); ++t) {
    if (!sequence.is_unmasked(t)) continue;
    const double weight = sequence.rollout_weight(t);
    if (!one_weight || own.weight_count == 0) {
      own.weight_sum += weight;
      own.weight_count += 1;
    }
    own.token_weight_sum += weight;
    own.token_square_sum += weight * weight;
    own.unmasked += 1;
    if (!sequence.is_active(t)) continue;
    if (entropies != nullptr) entropies[own.active] = sequence.entropy(t);
    own.selected += sequence.is_selected(t) ? 1 : 0;
    if (takes_by_covariance(batch.call.params.kind)) {
      own.advantage_sum += sequence.advantage(t);
      own.logp_sum += sequence.logp(t);
    }
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

// Sums of sequences are added in their order, as the declaration has it: what is taken hangs on their last bits.
void choose_by_covariance(PolicyBatch& batch, SequenceTerms* own, CovarianceKey* keys, const ParallelFor& hook) {
  CovarianceTerms& terms = batch.terms.covariance;
  double advantage = 0, logp = 0;
  int64_t active = 0;
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    advantage += own[b].advantage_sum;
    logp += own[b].logp_sum;
    active += own[b].active;
  }
  terms.mean_advantage = advantage / static_cast<double>(active);
  terms.mean_logp = logp / static_cast<double>(active);
  for_each_policy_sequence(batch, hook, [&](int64_t b) {
    const PolicySequence sequence(batch, b);
    CovarianceKey* const own_keys = keys + first_token(batch, b);
    for (int64_t t = 0; t < sequence.tokens(); ++t) {
      own[b].keys += sequence.is_active(t) && sequence.covariance_key(t, own_keys + own[b].keys) ? 1 : 0;
    }
  });
  int64_t count = 0;
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    std::copy_n(keys + first_token(batch, b), own[b].keys, keys + count);
    count += own[b].keys;
  }
  terms.last = last_taken(batch.call.params, active, keys, keys + count);
}

}  // namespace

bool combines_sequences(const PolicyParams& params) {
  return needs_mean(params) || needs_quantile(params.top_entropy_quantile) || takes_by_covariance(params.kind);
}

int64_t policy_terms_workspace_bytes(const PolicyParams& params, int64_t sequences, int64_t tokens) {
  const int64_t entropies = needs_quantile(params.top_entropy_quantile) ? tokens : 0;
  const int64_t keys = takes_by_covariance(params.kind) ? tokens : 0;
  return sequences * static_cast<int64_t>(sizeof(SequenceTerms)) + entropies * static_cast<int64_t>(sizeof(double)) +
         keys * static_cast<int64_t>(sizeof(CovarianceKey));
}

double entropy_divisor(const PolicyParams& params, double selected) {
  return params.entropy_denominator > 0 ? params.entropy_denominator : std::max(selected, 1.0);
}

PolicyTerms policy_terms(const PolicyBatch& given, PolicyTermsWanted wanted, void* workspace, const ParallelFor& hook) {
  PolicyBatch batch = given;
  const PolicyParams& params = batch.call.params;
  PolicyTerms& terms = batch.terms;
  terms.selects = params.least_entropy > 0;
  terms.least_entropy = params.least_entropy;
  const bool by_quantile = needs_quantile(params.top_entropy_quantile);
  const bool by_covariance = takes_by_covariance(params.kind);
  if (needs_mean(params) || by_quantile || by_covariance || wanted.mean_weight || wanted.selected) {
    auto* own = static_cast<SequenceTerms*>(workspace);
    auto* entropies = reinterpret_cast<double*>(own + batch.sequences.count);
    const auto entropies_of = [&](int64_t b) { return entropies + first_token(batch, b); };
    for_each_policy_sequence(batch, hook,
                             [&](int64_t b) { own[b] = terms_of(batch, b, by_quantile ? entropies_of(b) : nullptr); });
    SequenceTerms all;
    for (int64_t b = 0; b < batch.sequences.count; ++b) {
      if (by_quantile) std::copy_n(entropies_of(b), own[b].active, entropies + all.active);
      all.weight_sum += own[b].weight_sum;
      all.weight_count += own[b].weight_count;
      all.token_weight_sum += own[b].token_weight_sum;
      all.token_square_sum += own[b].token_square_sum;
      all.unmasked += own[b].unmasked;
      all.active += own[b].active;
      all.selected += own[b].selected;
    }
    terms.mean_weight = all.weight_count > 0 ? all.weight_sum / all.weight_count : 0;
    // In this order nothing is beyond fp64 where the answer is not.
    const double share = all.token_weight_sum / all.unmasked;
    terms.effective = all.token_square_sum == 0 ? 0 : share * (all.token_weight_sum / all.token_square_sum);
    if (by_quantile) {
      double* const end = entropies + all.active;
      const double least = quantile(params.top_entropy_quantile, entropies, end);
      all.selected = std::count_if(entropies, end, [least](double e) { return e >= least; });
      terms.selects = true;
      terms.least_entropy = least;
    }
    terms.selected = static_cast<double>(all.selected);
    if (by_covariance) {
      auto* keys = reinterpret_cast<CovarianceKey*>(entropies + (by_quantile ? batch.sequences.elements() : 0));
      choose_by_covariance(batch, own, keys, hook);
    }
  }
  if (params.rollout_is_normalize == RolloutIsNormalize::on) {
    const double mean = params.rollout_is_mean > 0 ? params.rollout_is_mean : terms.mean_weight;
    if (mean > kLeastMean) terms.weight_divisor = mean;
  }
  return terms;
}

}  // namespace rlk::cpu
