// What the tokens of policy_loss take from the whole batch: the mean of the importance weights, the quantile of the
// entropies, the choice by covariance, and what divides the sums.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/policy.hpp"
#include "core/golden/policy_covariance.hpp"

namespace rlk::golden {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

Tracked count(size_t n) {
  return {static_cast<double>(n), 0};
}

}  // namespace

// Tokens count, or where they share a weight their sequences.
void PolicyBatch::average_weights() {
  const bool of_sequence = p_.rollout_is == RolloutIs::sequence_truncate || p_.rollout_is == RolloutIs::sequence_mask;
  Tracked sum, of_tokens, of_squares;
  size_t n = 0, unmasked = 0;
  for (int64_t b = 0; b < sequences(); ++b) {
    std::vector<Token> tokens = gather(b, PolicySeed::none);
    weigh(tokens);
    for (const Token& token : tokens) {
      of_tokens = of_tokens + token.weight;
      of_squares = of_squares + token.weight * token.weight;
    }
    unmasked += tokens.size();
    if (of_sequence && tokens.size() > 1) tokens.resize(1);
    for (const Token& token : tokens) sum = sum + token.weight;
    n += tokens.size();
  }
  if (n > 0) mean_weight_ = sum / count(n);
  if (of_squares.value != 0) effective_ = of_tokens / count(unmasked) * (of_tokens / of_squares);
  if (p_.rollout_is_normalize == RolloutIsNormalize::off) return;
  const Tracked divisor = p_.rollout_is_mean > 0 ? parameter(p_.rollout_is_mean) : mean_weight_;
  if (divisor.value > 1e-8) weight_divisor_ = divisor;
}

void PolicyBatch::find_least_entropy() {
  selects_ = p_.top_entropy_quantile < 1 || p_.least_entropy > 0;
  least_entropy_ = p_.least_entropy;
  if (p_.top_entropy_quantile >= 1) return;
  std::vector<double> entropies;
  bool nan = false;
  for (int64_t b = 0; b < sequences(); ++b) {
    for (const Token& token : active_tokens(b, PolicySeed::none)) {
      entropies.push_back(token.entropy);
      nan |= std::isnan(token.entropy);
    }
  }
  least_entropy_ = std::numeric_limits<double>::quiet_NaN();
  if (entropies.empty() || nan) return;
  std::sort(entropies.begin(), entropies.end());
  const auto last = static_cast<double>(entropies.size() - 1);
  least_entropy_ =
      entropies[static_cast<size_t>(std::max(std::ceil((1 - p_.top_entropy_quantile) * last - 1e-6), 0.0))];
}

void PolicyBatch::take_by_covariance() {
  if (p_.kind != Kind::clip_cov && p_.kind != Kind::kl_cov) return;
  std::vector<std::vector<CovarianceToken>> sequences_of_tokens;
  for (int64_t b = 0; b < sequences(); ++b) {
    std::vector<CovarianceToken> tokens;
    for (const Token& token : active_tokens(b, PolicySeed::none)) {
      tokens.push_back({b, token.t, token.advantage.value, token.logp.value.value, may_be_taken(token)});
    }
    sequences_of_tokens.push_back(tokens);
  }
  taken_ = taken_by_covariance(p_, sequences_of_tokens);
}

bool PolicyBatch::has_own_bonus() const {
  return p_.entropy_coefficient != 0 && p_.entropy_aggregation == EntropyAggregation::token_mean;
}
Tracked PolicyBatch::bonus_divisor(int64_t selected) const {
  if (p_.entropy_denominator > 0) return parameter(p_.entropy_denominator);
  return {std::max(static_cast<double>(selected), 1.0), 0};
}

}  // namespace rlk::golden
