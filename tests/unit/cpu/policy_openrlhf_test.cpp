// policy_loss against the loss that OpenRLHF publishes (PolicyLoss, aggregate_loss, compute_approx_kl), each option
// with the others at their defaults. The 1e-8 that it adds to the token counts of sequences is left out.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <cmath>
#include <optional>
#include <string_view>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

// The arguments of PolicyLoss and of the actor's step, with OpenRLHF's defaults.
struct OpenRlhf {
  bool gspo = false;  // policy_loss_type
  double clip_eps_low = 0.2, clip_eps_high = 0.2;
  std::optional<double> dual_clip;
  bool token_level_loss = true;
  std::string_view correction;                       // vllm_is_correction_type, empty: off
  double low_threshold = 0.5, high_threshold = 5.0;  // vllm_is_truncated_threshold
  double dp_size = 1;
  std::optional<double> batch_num_tokens, global_batch_size;
  std::string_view gating = "ratio";
  std::string_view kl_estimator;  // empty: no KL loss
  bool unbiased_gradient = false;
  double kl_coef = 0.01;
  double entropy_coef = 0;
};

double masked_mean(const Row& a, const Row& mask) {
  return row_sum(a, mask) / tokens_of(mask);
}

double ratio_of(const TrainerBatch& d, const OpenRlhf& o, size_t b, size_t t) {
  if (!o.gspo) return std::exp(clip(d.lp[b][t] - d.old[b][t], -20, 20));
  double sum = 0;
  for (size_t u = 0; u < d.tokens(); ++u) {
    const double from = o.correction.empty() ? d.old[b][u] : d.sampled[b][u];
    sum += d.mask[b][u] != 0 ? d.lp[b][u] - from : 0.0;
  }
  return std::exp(sum / std::max(tokens_of(d.mask[b]), 1.0));
}

// The statistic of is_correction_gating; of the ratio its logarithm.
double gate_of(std::string_view gating, double sampled, double old) {
  if (gating == "ratio") return old - sampled;
  const double p = clip(std::exp(sampled), 1e-6, 1 - 1e-6), q = clip(std::exp(old), 1e-6, 1 - 1e-6);
  return gating == "tv" ? std::fabs(p - q) : p * std::log(p / q) + (1 - p) * std::log((1 - p) / (1 - q));
}

double correction_of(const TrainerBatch& d, const OpenRlhf& o, size_t b, size_t t) {
  if (o.correction.empty() || o.gspo) return 1;
  const double w = std::exp(d.old[b][t] - d.sampled[b][t]);
  if (o.correction == "tis") return clip(w, o.low_threshold, o.high_threshold);
  Row gates(d.tokens());  // of tokens: icepop
  for (size_t u = 0; u < d.tokens(); ++u) gates[u] = gate_of(o.gating, d.sampled[b][u], d.old[b][u]);
  const double gated = o.correction == "seq-mask-tis" ? masked_mean(gates, d.mask[b]) : gates[t];
  const double gate = o.gating == "ratio" ? std::exp(gated) : gated;
  return gate >= o.low_threshold && gate <= o.high_threshold ? w : 0.0;
}

double approx_kl(std::string_view estimator, double log_ratio) {
  if (estimator == "k1") return clip(log_ratio, -10, 10);
  if (estimator == "k2") return clip(log_ratio * log_ratio / 2, -10, 10);
  return clip(std::exp(-log_ratio) - 1 + log_ratio, -10, 10);
}

// Fully masked sequences are excluded.
double aggregate_loss(const TrainerBatch& d, const OpenRlhf& o, const Matrix& loss, bool token_level) {
  if (token_level) return sum_of(loss, d.mask) / o.batch_num_tokens.value_or(tokens_of(d.mask)) * o.dp_size;
  return sum_of_means(loss, d.mask) / o.global_batch_size.value_or(nonempty_of(d.mask)) * o.dp_size;
}

double openrlhf_loss(const TrainerBatch& d, const OpenRlhf& o) {
  const Matrix policy = each(d, [&](size_t b, size_t t) {
    const double a = d.advantage[b][t], ratio = ratio_of(d, o, b, t);
    double surrogate = std::min(ratio * a, clip(ratio, 1 - o.clip_eps_low, 1 + o.clip_eps_high) * a);
    if (o.dual_clip && a < 0) surrogate = std::max(surrogate, *o.dual_clip * a);
    return -surrogate * correction_of(d, o, b, t);
  });
  double loss = aggregate_loss(d, o, policy, o.token_level_loss && !o.gspo);
  if (!o.kl_estimator.empty()) {
    const Matrix kl = each(d, [&](size_t b, size_t t) {
      const double log_ratio = d.lp[b][t] - d.ref[b][t], detached = d.sg[b][t] - d.ref[b][t];
      if (!o.unbiased_gradient) return approx_kl(o.kl_estimator, log_ratio);
      const double w = std::min(std::exp(d.sg[b][t] - d.old[b][t]), 10.0);
      return approx_kl(o.kl_estimator, detached) + w * (log_ratio * log_ratio / 2 - detached * detached / 2);
    });
    loss += o.kl_coef * aggregate_loss(d, o, kl, true);
  }
  if (o.entropy_coef != 0) loss -= o.entropy_coef * aggregate_loss(d, o, d.entropy, true);
  return loss;
}

// ---- the same arguments as parameters of policy_loss --------------------------------------------------------------

PolicyCase openrlhf_case(const OpenRlhf& o, uint32_t seed) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  for (int64_t t = 0; t < 6; ++t) {  // samplers that lie far from the trainer: above and below the thresholds
    c.rollout_logp.set(6 + t, c.rollout_logp.get(6 + t) - 1.9);
    c.rollout_logp.set(12 + t, c.rollout_logp.get(12 + t) + 1.3);
  }
  mask_some(c);
  Params& p = c.params;
  p.clip_low = o.clip_eps_low;
  p.clip_high = o.clip_eps_high;
  p.dual_clip = o.dual_clip.value_or(0);
  if (o.gspo || !o.token_level_loss) {
    p.aggregation = Aggregation::seq_mean_token_mean;
    p.exclude_empty_sequences = ExcludeEmptySequences::on;
    if (o.global_batch_size) p.denominator = *o.global_batch_size / o.dp_size;
  } else if (o.batch_num_tokens) {
    p.denominator = *o.batch_num_tokens / o.dp_size;
  }
  p.rollout_is = o.correction == "icepop"         ? RolloutIs::token_mask
                 : o.correction == "seq-mask-tis" ? RolloutIs::geometric_mask
                                                  : RolloutIs::token_truncate;
  p.rollout_gate = o.gating == "tv"          ? RolloutGate::tv
                   : o.gating == "binary_kl" ? RolloutGate::binary_kl
                                             : RolloutGate::ratio;
  p.rollout_is_min = o.low_threshold;
  p.rollout_is_max = o.high_threshold;
  if (o.gspo) {
    p.importance_ratio = ImportanceRatio::sequence;
    if (!o.correction.empty()) c.old_logp = c.rollout_logp;  // the ratio to the sampler takes the correction's place
  } else {
    p.log_ratio_clamp_low = p.log_ratio_clamp_high = 20;
  }
  if (o.correction.empty() || o.gspo) c.rollout_logp = {};
  if (!o.kl_estimator.empty()) {
    p.beta = o.kl_coef;
    p.kl_kind = o.kl_estimator == "k1" ? KlKind::k1 : o.kl_estimator == "k2" ? KlKind::k2 : KlKind::k3;
    p.kl_value_clamp = 10;
    if (o.unbiased_gradient) p.kl_gradient = KlGradient::k2_weighted;
  }
  p.entropy_coefficient = o.entropy_coef;
  if (o.gspo) p.entropy_aggregation = EntropyAggregation::token_mean;
  return c;
}

void expect_openrlhf(const OpenRlhf& o, PolicyCase& c) {
  expect_trainer(c, [&](const TrainerBatch& d) { return openrlhf_loss(d, o); });
}
void expect_openrlhf(const OpenRlhf& o, uint32_t seed) {
  PolicyCase c = openrlhf_case(o, seed);
  expect_openrlhf(o, c);
}

TEST(PolicyOpenRlhf, PpoWithItsDefaultsClampsTheLogRatio) {
  OpenRlhf o;
  PolicyCase c = openrlhf_case(o, 81);
  c.logp.set(0, 24.0);  // beyond the clamp on each side, with advantages that do not clip there
  c.advantages.set(0, -1.5e-9);
  c.logp.set(1, -26.0);
  c.advantages.set(1, 1.5);
  expect_openrlhf(o, c);
  EXPECT_EQ(run_policy_loss_backward(c, backwards_parallel()).grad_logp.get(0), 0);
  c.params.log_ratio_clamp_high = 0;
  EXPECT_NE(run_policy_loss_backward(c, backwards_parallel()).grad_logp.get(0), 0);
}

TEST(PolicyOpenRlhf, DualClipBoundsTheLossOfNegativeAdvantages) {
  OpenRlhf o;
  o.dual_clip = 3.0;
  PolicyCase c = openrlhf_case(o, 82);
  for (const double a : {-1.5, 1.5}) {
    c.logp.set(0, c.old_logp.get(0) + 1.4);  // ratio 4.06
    c.advantages.set(0, a);
    expect_openrlhf(o, c);
    EXPECT_EQ(run_policy_loss(c, backwards_parallel()).metrics[4] > 0, a < 0);
  }
}

TEST(PolicyOpenRlhf, EveryCorrectionWithItsDefaultThresholds) {
  for (const char* correction : {"tis", "icepop", "seq-mask-tis"}) {
    SCOPED_TRACE(correction);
    OpenRlhf o;
    o.correction = correction;
    o.kl_estimator = "k2";  // which the correction does not multiply
    PolicyCase c = openrlhf_case(o, 83);
    const TrainerBatch d = trainer_batch(c);
    int above = 0, below = 0, inside = 0;
    for (size_t i = 0; i < 24; ++i) {
      if (d.mask[i / 6][i % 6] == 0) continue;
      const double w = std::exp(d.old[i / 6][i % 6] - d.sampled[i / 6][i % 6]);
      ++(w > 5.0 ? above : w < 0.5 ? below : inside);
    }
    EXPECT_GT(above, 0);
    EXPECT_GT(below, 0);
    EXPECT_GT(inside, 0);
    expect_openrlhf(o, c);
  }
}

TEST(PolicyOpenRlhf, DivergencesGateTokensAndSequences) {
  for (const char* gating : {"binary_kl", "tv"}) {
    for (const char* correction : {"icepop", "seq-mask-tis"}) {
      SCOPED_TRACE(std::string(gating) + " " + correction);
      OpenRlhf o;
      o.gating = gating;
      o.correction = correction;
      o.low_threshold = 0;
      o.high_threshold = 0.1;
      PolicyCase c = openrlhf_case(o, 93);
      const TrainerBatch d = trainer_batch(c);
      int kept = 0, dropped = 0;
      for (size_t i = 0; i < 24; ++i) {
        if (d.mask[i / 6][i % 6] != 0) ++(correction_of(d, o, i / 6, i % 6) == 0 ? dropped : kept);
      }
      EXPECT_GT(kept, 0);
      EXPECT_GT(dropped, 0);
      expect_openrlhf(o, c);
    }
  }
}

TEST(PolicyOpenRlhf, TheUnbiasedGradientOfEveryEstimatorIsThatOfK2ByACappedWeight) {
  for (const char* estimator : {"k1", "k2", "k3"}) {
    SCOPED_TRACE(estimator);
    OpenRlhf o;
    o.kl_estimator = estimator;
    o.unbiased_gradient = true;
    o.kl_coef = 0.7;
    PolicyCase c = openrlhf_case(o, 94);
    c.old_logp.set(0, c.logp.get(0) - 2.5);  // a weight above 10
    c.ref_logp.set(1, c.logp.get(1) + 11);   // values beyond their clamp keep the gradient
    expect_openrlhf(o, c);
  }
}

TEST(PolicyOpenRlhf, GspoIsTheSequencesRatioAndTheMeanOfSequencesThatAreNotEmpty) {
  OpenRlhf o;
  o.gspo = true;
  expect_openrlhf(o, 84);
  o.dual_clip = 3.0;
  o.clip_eps_low = 3e-4;
  o.clip_eps_high = 4e-4;
  expect_openrlhf(o, 84);
}

TEST(PolicyOpenRlhf, GspoWithACorrectionTakesTheRatioToTheSampler) {
  OpenRlhf o;
  o.gspo = true;
  o.correction = "tis";
  PolicyCase c = openrlhf_case(o, 85);
  expect_trainer(c, [&](const TrainerBatch& d) {
    TrainerBatch with_sampler = d;
    with_sampler.sampled = d.old;
    return openrlhf_loss(with_sampler, o);
  });
}

TEST(PolicyOpenRlhf, BothAggregationsWithAndWithoutGlobalCounts) {
  for (const bool token_level : {true, false}) {
    for (const bool global : {false, true}) {
      OpenRlhf o;
      o.token_level_loss = token_level;
      if (global) {
        o.dp_size = 4;
        o.batch_num_tokens = 57;
        o.global_batch_size = 14;
      }
      expect_openrlhf(o, 86);
    }
  }
}

TEST(PolicyOpenRlhf, EveryEstimatorOfTheKlLossIsClampedToTen) {
  for (const char* estimator : {"k1", "k2", "k3"}) {
    SCOPED_TRACE(estimator);
    OpenRlhf o;
    o.kl_estimator = estimator;
    PolicyCase c = openrlhf_case(o, 87);
    c.ref_logp.set(0, c.logp.get(0) + 15);  // beyond the clamp in every estimator, on both sides
    c.ref_logp.set(1, c.logp.get(1) - 15);
    c.ref_logp.set(3, c.logp.get(3) + 2);
    expect_openrlhf(o, c);
  }
}

TEST(PolicyOpenRlhf, EntropyBonusIsATokenMean) {
  OpenRlhf o;
  o.entropy_coef = 0.01;
  PolicyCase c = openrlhf_case(o, 88);
  expect_openrlhf(o, c);
  EXPECT_NEAR(run_policy_loss_backward(c, backwards_parallel()).grad_entropy.get(0), -0.01 / 12, 1e-16);
  o.gspo = true;  // beside means of sequences too
  expect_openrlhf(o, 88);
}

}  // namespace
}  // namespace rlk::test
