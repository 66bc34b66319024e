// policy_loss against RL-Kernel's losses from log-probabilities: the operator's masked mean, the aggregation of ratios
// and the three normalisers of its distributed loss. grpo_loss_test.cpp has the operator from logits.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <cmath>
#include <string_view>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

PolicyCase rl_kernel_case(uint32_t seed) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  const double advantages[] = {0.9, -1.3, 0.4, -0.2};
  for (int64_t i = 0; i < c.advantages.size(); ++i) c.advantages.set(i, advantages[i / 6]);
  mask_some(c);
  c.rollout_logp = {};
  return c;
}

// -minimum(ratio A, clamp(ratio) A) + beta KL, in totals and counts of sequences.
double rl_kernel_loss(const TrainerBatch& d, double low, double high, double beta, bool k1,
                      std::string_view normalizer) {
  double total = 0, means = 0, tokens = 0, live = 0;
  for (size_t b = 0; b < d.sequences(); ++b) {
    double sum = 0;
    const double n = tokens_of(d.mask[b]);
    for (size_t t = 0; t < d.tokens(); ++t) {
      if (d.mask[b][t] == 0) continue;
      const double ratio = std::exp(d.lp[b][t] - d.old[b][t]), a = d.advantage[b][t], x = d.ref[b][t] - d.lp[b][t];
      sum += -std::min(ratio * a, clip(ratio, 1 - low, 1 + high) * a) + beta * (k1 ? -x : std::exp(x) - x - 1);
    }
    total += sum;
    tokens += n;
    if (n > 0) means += sum / n;
    live += n > 0 ? 1 : 0;
  }
  if (normalizer == "fixed_constant") return total / 96;
  return normalizer == "per_sequence_then_mean" ? means / live : total / std::max(tokens, 1e-8);
}

TEST(PolicyRlKernel, MaskedMeanWithItsDefaults) {
  PolicyCase c = rl_kernel_case(131);
  expect_trainer(c,
                 [](const TrainerBatch& d) { return rl_kernel_loss(d, 0.2, 0.2, 0, false, "global_active_tokens"); });
}

TEST(PolicyRlKernel, TheThreeNormalizersOfTheDistributedLoss) {
  for (const char* normalizer : {"global_active_tokens", "per_sequence_then_mean", "fixed_constant"}) {
    for (const bool k1 : {false, true}) {
      SCOPED_TRACE(normalizer);
      const std::string_view name = normalizer;
      PolicyCase c = rl_kernel_case(132);
      c.params.clip_high = 0.28;
      c.params.beta = 0.04;
      c.params.kl_kind = k1 ? KlKind::k1 : KlKind::k3;
      if (name == "per_sequence_then_mean") {  // live sequences only
        c.params.aggregation = Aggregation::seq_mean_token_mean;
        c.params.exclude_empty_sequences = ExcludeEmptySequences::on;
      }
      if (name == "fixed_constant") {
        c.params.aggregation = Aggregation::token_sum;
        c.params.denominator = 96;
      }
      expect_trainer(c, [&](const TrainerBatch& d) { return rl_kernel_loss(d, 0.2, 0.28, 0.04, k1, name); });
    }
  }
}

// ratio_clip_aggregate takes ratios: their logarithms are differences to an old log-probability of 0.
TEST(PolicyRlKernel, RatiosArePassedAsTheirLogarithms) {
  PolicyCase c = rl_kernel_case(133);
  for (int64_t i = 0; i < 24; ++i) {
    if (c.mask.get_int(i) == 0) continue;
    c.logp.set(i, c.logp.get(i) - c.old_logp.get(i));
    c.old_logp.set(i, 0);
  }
  const TrainerBatch d = trainer_batch(c);
  double clipped = 0;
  for (size_t i = 0; i < 24; ++i) {
    if (d.mask[i / 6][i % 6] == 0) continue;
    const double ratio = std::exp(d.lp[i / 6][i % 6]), a = d.advantage[i / 6][i % 6];
    clipped += (ratio < 0.8 && a < 0) || (ratio > 1.2 && a > 0) ? 1 : 0;
  }
  expect_trainer(c,
                 [](const TrainerBatch& e) { return rl_kernel_loss(e, 0.2, 0.2, 0, false, "global_active_tokens"); });
  EXPECT_NEAR(run_policy_loss(c, backwards_parallel()).metrics[3], clipped / 12, 1e-15);
  EXPECT_GT(clipped, 0);
}

TEST(PolicyRlKernel, AMaskOfZerosGivesZeros) {
  PolicyCase c = rl_kernel_case(134);
  for (int64_t i = 0; i < 24; ++i) c.mask.set_int(i, 0);
  c.params.beta = 0.04;
  const PolicyOutputs got = run_policy_loss(c, backwards_parallel());
  EXPECT_EQ(got.loss, 0);
  for (const double metric : got.metrics) EXPECT_EQ(metric, 0);
}

}  // namespace
}  // namespace rlk::test
