// The policy loss of a batch: the declaration's formula over the tokens of policy.hpp, their aggregation and metrics.
#include <cmath>
#include <limits>

#include "core/golden/policy.hpp"

namespace rlk::golden {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

constexpr int kMetrics = RLK_POLICY_LOSS_N_METRICS;
constexpr int kMeans = RLK_POLICY_LOSS_METRICS_REJECTED;  // sums or means over active tokens, before the others

void add_metrics(const PolicyToken& token, std::vector<Tracked>& sums) {
  const auto flag = [](bool on) { return Tracked{on ? 1.0 : 0.0, 0}; };
  const Tracked terms[kMeans] = {{1, 0},
                                 token.kl,
                                 -token.x,
                                 flag(token.clipped),
                                 flag(token.clipped_lower),
                                 flag(token.below),
                                 flag(token.above),
                                 token.ratio,
                                 token.entropy,
                                 token.phi,
                                 token.weight,
                                 flag(token.selected)};
  for (size_t i = 0; i < kMeans; ++i) sums[i] = sums[i] + terms[i];
}

}  // namespace

DataError policy_loss(PolicyCall& call) {
  const PolicyBatch batch(call);
  if (batch.error().kind != kNoDataError) {
    fill(call.loss, 1, kNan);
    fill(call.per_token, batch.tokens(), kNan);
    fill(call.metrics, kMetrics, kNan);
    fill(call.sequence_metrics, batch.sequences() * (kMeans + 1), kNan);
    return batch.error();
  }

  fill(call.per_token, batch.tokens(), 0.0);
  std::vector<std::vector<PolicyToken>> tokens;
  std::vector<int64_t> active;
  std::vector<Tracked> metrics(kMetrics);
  std::vector<Tracked> of_sequences;
  double unmasked = 0;
  for (int64_t b = 0; b < batch.sequences(); ++b) {
    tokens.push_back(batch.losses(b, PolicySeed::none));
    active.push_back(static_cast<int64_t>(tokens.back().size()));
    double own_unmasked = 0;
    for (int64_t t = 0; t < batch.length(b); ++t) own_unmasked += batch.unmasked(b, t) ? 1 : 0;
    unmasked += own_unmasked;
    std::vector<Tracked> own(kMeans);
    for (const PolicyToken& token : tokens.back()) add_metrics(token, own);
    const double own_active = own[0].value;
    for (size_t i = 1; i < kMeans && own_active > 0; ++i) own[i] = own[i] / Tracked{own_active, 0};
    own.push_back(own_unmasked > 0 ? Tracked{own_unmasked - own_active, 0} / Tracked{own_unmasked, 0} : Tracked{});
    of_sequences.insert(of_sequences.end(), own.begin(), own.end());
    for (const PolicyToken& token : tokens.back()) {
      const auto at = static_cast<size_t>(batch.flat(b, token.t));
      call.per_token.value[at] = token.loss.value.value;
      call.per_token.cond[at] = std::isfinite(token.loss.value.value) ? kTiny + token.loss.value.error : 0.0;
      add_metrics(token, metrics);
    }
  }

  const std::vector<Tracked> weights = loss_weights(call.params, active);
  Tracked loss;
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (call.params.aggregation == Aggregation::none) break;
    for (const PolicyToken& token : tokens[b]) loss = loss + token.loss.value * weights[b];
  }
  if (batch.has_own_bonus()) {
    Tracked sum;
    int64_t selected = 0;
    for (const std::vector<PolicyToken>& sequence : tokens) {
      for (const PolicyToken& token : sequence) {
        if (!token.selected) continue;
        sum = sum + token.entropy;
        ++selected;
      }
    }
    loss = loss - parameter(call.params.entropy_coefficient) * sum / batch.bonus_divisor(selected);
  }
  const double n = metrics[0].value;
  for (size_t i = 1; i < kMeans && n > 0; ++i) metrics[i] = metrics[i] / Tracked{n, 0};
  metrics[RLK_POLICY_LOSS_METRICS_REJECTED] =
      unmasked > 0 ? Tracked{unmasked - n, 0} / Tracked{unmasked, 0} : Tracked{};
  metrics[RLK_POLICY_LOSS_METRICS_ROLLOUT_IS_MEAN] = batch.mean_weight();
  put_all(call.loss, {loss});
  metrics[RLK_POLICY_LOSS_METRICS_ROLLOUT_ESS] = batch.effective();
  put_all(call.metrics, metrics);
  put_all(call.sequence_metrics, of_sequences);
  return {};
}

}  // namespace rlk::golden
