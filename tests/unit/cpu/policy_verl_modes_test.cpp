// policy_loss against the policy loss modes that verl publishes, with verl's defaults (policy_covariance_test.cpp has
// clip_cov and kl_cov); its aggregations with and without the counts of a global batch, its weights against the
// sampler, and its metrics. The 1e-8 that verl adds to counts of tokens is left out.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

// The configuration of the actor, with verl's defaults.
struct Verl {
  std::string_view loss_mode = "vanilla";
  double clip_low = 0.2, clip_high = 0.2, clip_ratio_c = 3.0;
  double tau_pos = 1.0, tau_neg = 1.05;
  double dro_beta = 0.1;
  std::string_view loss_agg_mode = "token-mean";
  double dp_size = 1;
  std::optional<double> batch_num_tokens, global_batch_size, loss_scale_factor;
  std::string_view rollout_is;  // empty, token or sequence
  double rollout_is_threshold = 2.0;
};

double sign_of(double a) {
  return a > 0 ? 1 : a < 0 ? -1 : 0;
}

// compute_rollout_correction_weights
double rollout_weight(const TrainerBatch& d, const Verl& o, size_t b, size_t t) {
  if (o.rollout_is.empty()) return 1;
  double log_ratio = d.old[b][t] - d.sampled[b][t];
  if (o.rollout_is == "sequence") {
    log_ratio = 0;
    for (size_t u = 0; u < d.tokens(); ++u) log_ratio += d.mask[b][u] != 0 ? d.old[b][u] - d.sampled[b][u] : 0.0;
  }
  return std::min(std::exp(clip(log_ratio, -20, 20)), o.rollout_is_threshold);
}

bool dppo_valid(const TrainerBatch& d, const Verl& o, size_t b, size_t t) {
  const double lp = d.sg[b][t], lo = d.old[b][t], p = std::exp(lp), q = std::exp(lo);
  const bool up = d.advantage[b][t] > 0;
  if (o.loss_mode == "dppo_tv") return up ? p - q <= o.clip_high : p - q >= -o.clip_low;
  const double kl = q * (lo - lp) + (1 - q) * std::log((1 - q + 1e-8) / (1 - p + 1e-8));
  return up ? kl <= o.clip_high || p <= q : kl <= o.clip_low || p >= q;
}

double policy_term(const TrainerBatch& d, const Verl& o, size_t b, size_t t) {
  const double lp = d.lp[b][t], a = d.advantage[b][t], low = 1 - o.clip_low, high = 1 + o.clip_high;
  const double x = lp - d.old[b][t], ratio = std::exp(clip(x, -20, 20));
  const double held = std::exp(clip(d.sg[b][t] - d.old[b][t], -20, 20));  // detached
  if (o.loss_mode == "vanilla") {
    const double clipped = std::max(-a * ratio, -a * clip(ratio, low, high));
    return a < 0 ? std::min(-a * o.clip_ratio_c, clipped) : clipped;
  }
  if (o.loss_mode == "gspo") {
    double mean = 0;
    for (size_t u = 0; u < d.tokens(); ++u) mean += d.mask[b][u] != 0 ? d.sg[b][u] - d.old[b][u] : 0.0;
    mean /= std::max(tokens_of(d.mask[b]), 1.0);
    const double of_sequence = std::exp(std::min(lp - d.sg[b][t] + mean, 10.0));
    return std::max(-a * of_sequence, -a * clip(of_sequence, low, high));
  }
  if (o.loss_mode == "sapo") {
    const double tau = a > 0 ? o.tau_pos : o.tau_neg;
    return -sigmoid(tau * (ratio - 1)) * (4 / tau) * a;
  }
  if (o.loss_mode == "cispo") return -clip(held, low, high) * a * lp;
  if (o.loss_mode == "gpg") return -lp * a;
  if (o.loss_mode == "dro") return -(lp * a - 0.5 * o.dro_beta * x * x);
  return dppo_valid(d, o, b, t) ? -a * std::min(held, o.clip_ratio_c) * lp : 0.0;
}

// agg_loss; sequences that are fully masked are excluded.
double agg_loss(const TrainerBatch& d, const Verl& o, std::string_view mode, const Matrix& loss) {
  const double sums = sum_of(loss, d.mask);
  if (mode == "token-mean") return sums / o.batch_num_tokens.value_or(tokens_of(d.mask)) * o.dp_size;
  if (mode == "token-sum") return sums * o.dp_size;
  const double count = o.global_batch_size.value_or(nonempty_of(d.mask)) / o.dp_size;
  if (mode == "seq-mean-token-mean") return sum_of_means(loss, d.mask) / count;
  if (mode == "seq-mean-token-sum") return sums / count;
  return sums / count / o.loss_scale_factor.value_or(static_cast<double>(d.tokens()));  // seq-mean-token-sum-norm
}

double geo_mean_loss(const TrainerBatch& d, const Verl& o) {
  double sum = 0;
  for (size_t b = 0; b < d.sequences(); ++b) {
    const double n = std::max(tokens_of(d.mask[b]), 1e-8);
    double exponent = 0, advantage = 0, log_weight = 0;
    for (size_t t = 0; t < d.tokens(); ++t) {
      if (d.mask[b][t] == 0) continue;
      const double x = d.lp[b][t] - d.old[b][t], sign = sign_of(d.advantage[b][t]);
      exponent += sign * std::min(sign * x, sign * clip(x, -o.clip_low, o.clip_high));
      advantage += d.advantage[b][t];
      log_weight += std::log(rollout_weight(d, o, b, t) + (o.rollout_is.empty() ? 0 : 1e-10));
    }
    sum += -advantage / n * std::exp(exponent / n) * std::exp(log_weight / n);
  }
  return sum / static_cast<double>(d.sequences());
}

bool forces_sequence_means(const Verl& o) {
  return o.loss_mode == "gspo" || o.loss_mode == "sapo";
}
double verl_loss(const TrainerBatch& d, const Verl& o) {
  if (o.loss_mode == "geo_mean") return geo_mean_loss(d, o);
  const Matrix loss = each(d, [&](size_t b, size_t t) { return policy_term(d, o, b, t) * rollout_weight(d, o, b, t); });
  return agg_loss(d, o, forces_sequence_means(o) ? "seq-mean-token-mean" : o.loss_agg_mode, loss);
}

// ---- the same configuration as parameters of policy_loss ----------------------------------------------------------

void set_aggregation(const Verl& o, Params& p) {
  const std::string_view mode = forces_sequence_means(o) ? "seq-mean-token-mean" : o.loss_agg_mode;
  if (mode == "token-mean") {
    if (o.batch_num_tokens) p.denominator = *o.batch_num_tokens / o.dp_size;
    return;
  }
  if (mode == "token-sum") {
    p.aggregation = Aggregation::token_sum;
    p.denominator = 1 / o.dp_size;
    return;
  }
  p.aggregation = mode == "seq-mean-token-mean" ? Aggregation::seq_mean_token_mean : Aggregation::seq_mean_token_sum;
  p.exclude_empty_sequences = ExcludeEmptySequences::on;
  if (o.global_batch_size) p.denominator = *o.global_batch_size / o.dp_size;
  if (mode == "seq-mean-token-sum-norm") {  // three of the four sequences have tokens
    p.denominator = (o.global_batch_size.value_or(3) / o.dp_size) * o.loss_scale_factor.value_or(6);
  }
}

PolicyCase verl_case(const Verl& o, uint32_t seed) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  mask_some(c);
  if (o.rollout_is.empty()) c.rollout_logp = {};
  Params& p = c.params;
  p.clip_low = o.clip_low;
  p.clip_high = o.clip_high;
  p.log_ratio_clamp_low = p.log_ratio_clamp_high = 20;
  if (o.loss_mode == "vanilla") p.dual_clip = o.clip_ratio_c;
  if (o.loss_mode == "gspo") {
    p.importance_ratio = ImportanceRatio::sequence_token;
    p.log_ratio_clamp_low = 0;
    p.log_ratio_clamp_high = 10;
  }
  if (o.loss_mode == "sapo") p.kind = Kind::sapo;
  if (o.loss_mode == "cispo") p.kind = Kind::cispo;
  if (o.loss_mode == "gpg") p.kind = Kind::gpg;
  if (o.loss_mode == "dro") p.kind = Kind::dro;
  if (o.loss_mode == "dppo_tv" || o.loss_mode == "dppo_kl") {
    p.kind = o.loss_mode == "dppo_tv" ? Kind::dppo_tv : Kind::dppo_kl;
    p.delta = o.clip_ratio_c;
  }
  set_aggregation(o, p);
  if (o.loss_mode == "geo_mean") {
    p.kind = Kind::gmpo;
    p.log_ratio_clamp_low = p.log_ratio_clamp_high = 0;
    p.aggregation = Aggregation::seq_mean_token_mean;
  }
  p.rollout_is = o.rollout_is == "sequence" ? RolloutIs::sequence_truncate : RolloutIs::token_truncate;
  p.rollout_is_max = o.rollout_is_threshold;
  p.rollout_log_clamp = 20;
  return c;
}

void expect_verl(const Verl& o, PolicyCase& c) {
  SCOPED_TRACE(std::string(o.loss_mode) + " " + std::string(o.loss_agg_mode) + " " + std::string(o.rollout_is));
  expect_trainer(c, [&](const TrainerBatch& d) { return verl_loss(d, o); });
}
void expect_verl(const Verl& o, uint32_t seed) {
  PolicyCase c = verl_case(o, seed);
  expect_verl(o, c);
}

const char* const kModes[] = {"vanilla", "gspo", "sapo", "cispo", "gpg", "dro", "geo_mean", "dppo_tv", "dppo_kl"};

TEST(PolicyVerlModes, EveryModeWithItsDefaults) {
  for (const char* mode : kModes) {
    Verl o;
    o.loss_mode = mode;
    expect_verl(o, 111);
  }
}

TEST(PolicyVerlModes, DppoDropsTokensAtItsDefaultThresholds) {
  for (const char* mode : {"dppo_tv", "dppo_kl"}) {
    for (const double c : {3.0, 20.0}) {  // the actor's own, and what the loss takes where a configuration has none
      Verl o;
      o.loss_mode = mode;
      o.clip_ratio_c = c;
      PolicyCase batch = verl_case(o, 112);
      batch.old_logp.set(0, -5);  // probability rises: dropped where A > 0, ratio e^4.8 where A < 0
      batch.logp.set(0, -0.2);
      for (const double a : {1.5, -1.5}) {
        batch.advantages.set(0, a);
        expect_verl(o, batch);
        EXPECT_EQ(dppo_valid(trainer_batch(batch), o, 0, 0), a < 0) << mode;
      }
    }
  }
}

TEST(PolicyVerlModes, SapoClampsTheLogRatio) {
  Verl o;
  o.loss_mode = "sapo";
  PolicyCase c = verl_case(o, 113);
  c.logp.set(0, -26);
  c.old_logp.set(0, -1);
  expect_verl(o, c);
  EXPECT_EQ(run_policy_loss_backward(c, backwards_parallel()).grad_logp.get(0), 0);
}

TEST(PolicyVerlModes, EveryAggregationLeavesOutEmptySequencesOrTakesTheGlobalCounts) {
  for (const char* mode :
       {"token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"}) {
    for (const bool global : {false, true}) {
      Verl o;
      o.loss_agg_mode = mode;
      if (global) {
        o.dp_size = 4;
        o.batch_num_tokens = 57;
        o.global_batch_size = 14;
        o.loss_scale_factor = 2048;
      }
      expect_verl(o, 114);
    }
  }
}

TEST(PolicyVerlModes, TheWeightsAgainstTheSamplerMultiplyEveryMode) {
  for (const char* mode : kModes) {
    for (const char* level : {"token", "sequence"}) {
      Verl o;
      o.loss_mode = mode;
      o.rollout_is = level;
      PolicyCase c = verl_case(o, 115);
      c.rollout_logp.set(0, c.old_logp.get(0) - 1.5);  // truncated
      expect_verl(o, c);
    }
  }
}

TEST(PolicyVerlModes, TheLogRatioToTheSamplerIsClampedBeforeItIsAWeight) {
  Verl o;
  o.rollout_is = "token";
  o.rollout_is_threshold = 1e30;
  PolicyCase c = verl_case(o, 116);
  c.rollout_logp.set(0, c.old_logp.get(0) - 30);
  c.rollout_logp.set(1, c.old_logp.get(1) + 30);
  const TrainerBatch d = trainer_batch(c);
  const PolicyOutputs got = run_policy_loss(c, backwards_parallel());
  EXPECT_DOUBLE_EQ(got.per_token.get(0), policy_term(d, o, 0, 0) * std::exp(20.0));
  EXPECT_DOUBLE_EQ(got.per_token.get(1), policy_term(d, o, 0, 1) * std::exp(-20.0));
}

// bypass_mode with reinforce: the sampler is the old policy, and the weight is the current policy's over it.
TEST(PolicyVerlModes, BypassReinforceWeighsByTheCurrentPolicyOverTheSampler) {
  for (const char* level : {"token", "sequence"}) {
    Verl o;
    o.loss_mode = "gpg";
    o.rollout_is = level;
    PolicyCase c = verl_case(o, 117);
    c.old_logp = c.rollout_logp;
    c.params.rollout_ratio = RolloutRatio::current;
    const auto published = [&](const TrainerBatch& d) {
      TrainerBatch bypass = d;
      bypass.old = d.sg;
      return verl_loss(bypass, o);
    };
    expect_trainer(c, published);
    const TrainerBatch d = trainer_batch(c);
    const Matrix kl = each(d, [&](size_t b, size_t t) { return d.sampled[b][t] - d.lp[b][t]; });
    EXPECT_NEAR(run_policy_loss(c, backwards_parallel()).metrics[RLK_POLICY_LOSS_METRICS_PPO_KL],
                sum_of(kl, d.mask) / tokens_of(d.mask), 1e-14);
    // Without an old policy the current one stands in its place.
    c.params.rollout_ratio = RolloutRatio::old;
    c.old_logp = {};
    expect_trainer(c, published);
  }
}

TEST(PolicyVerlModes, MetricsAreTheClipFractionsAndTheKl) {
  for (const char* mode : {"vanilla", "gspo", "cispo", "geo_mean", "dppo_tv", "dppo_kl"}) {
    Verl o;
    o.loss_mode = mode;
    o.clip_low = 0.05;
    o.clip_high = 0.1;
    PolicyCase c = verl_case(o, 120);
    c.logp.set(0, c.old_logp.get(0) + 1.4);  // beyond clip_ratio_c
    c.advantages.set(0, -1);
    const TrainerBatch d = trainer_batch(c);
    double clipped = 0, lower = 0, kl = 0;
    for (size_t i = 0; i < 24; ++i) {
      const size_t b = i / 6, t = i % 6;
      if (d.mask[b][t] == 0) continue;
      const double x = d.lp[b][t] - d.old[b][t], a = d.advantage[b][t];
      double ratio = std::exp(x);
      if (o.loss_mode == "gspo") {
        double mean = 0;
        for (size_t u = 0; u < 6; ++u) mean += d.mask[b][u] != 0 ? d.lp[b][u] - d.old[b][u] : 0.0;
        ratio = std::exp(mean / tokens_of(d.mask[b]));
      }
      const double bounded = clip(ratio, 1 - o.clip_low, 1 + o.clip_high);
      const bool moved = x != clip(x, -o.clip_low, o.clip_high);
      kl -= x;
      if (o.loss_mode == "cispo") {
        clipped += ratio != bounded ? 1 : 0;
      } else if (o.loss_mode == "geo_mean") {
        clipped += moved && a > 0 ? 1 : 0;
        lower += moved && a < 0 ? 1 : 0;
      } else if (o.loss_mode == "vanilla" || o.loss_mode == "gspo") {
        clipped += -a * bounded > -a * ratio ? 1 : 0;
        lower += o.loss_mode == "vanilla" && a < 0 && std::max(-a * ratio, -a * bounded) > -a * 3 ? 1 : 0;
      } else {
        clipped += dppo_valid(d, o, b, t) ? 0 : 1;
        lower += dppo_valid(d, o, b, t) && ratio > o.clip_ratio_c ? 1 : 0;
      }
    }
    const std::vector<double> metrics = run_policy_loss(c, backwards_parallel()).metrics;
    EXPECT_NEAR(metrics[2], kl / 12, 1e-13) << mode;
    EXPECT_NEAR(metrics[3], clipped / 12, 1e-15) << mode;
    EXPECT_NEAR(metrics[4], lower / 12, 1e-15) << mode;
    EXPECT_GT(clipped, 0) << mode;
    EXPECT_EQ(lower > 0, o.loss_mode != "gspo" && o.loss_mode != "cispo") << mode;
  }
}

}  // namespace
}  // namespace rlk::test
