// policy_loss against the losses that slime publishes (policy_loss_function and what it calls), each option with the
// others at their defaults.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <cmath>
#include <functional>
#include <optional>
#include <string_view>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

// slime's arguments, with its defaults.
struct Slime {
  std::string_view advantage_estimator = "grpo";  // or gspo, cispo
  double eps_clip = 0.2, eps_clip_high = 0.2;
  std::optional<double> eps_clip_c;
  bool use_opsm = false;
  double opsm_delta = 1e-4;
  std::string_view tis;  // empty, vanilla or icepop
  double tis_clip_low = 0, tis_clip = 2.0;
  std::string_view kl_loss_type;  // empty: no use_kl_loss
  double kl_loss_coef = 0.05;
  bool use_unbiased_kl = false;
  double entropy_coef = 0;
  double global_batch_size = 6;           // rollouts
  size_t samples_per_rollout = 1;         // neighbours in the batch
  bool calculate_per_token_loss = false;  // the sum of tokens, divided by the tokens of the global batch
  double global_tokens = 40;
};

double sequence_mean(const TrainerBatch& d, size_t b, const Matrix& from, const Matrix& to) {
  double sum = 0;
  for (size_t t = 0; t < d.tokens(); ++t) sum += d.mask[b][t] != 0 ? from[b][t] - to[b][t] : 0.0;
  return sum / std::max(tokens_of(d.mask[b]), 1.0);
}

double policy_term(const TrainerBatch& d, const Slime& o, size_t b, size_t t) {
  const double a = d.advantage[b][t];
  if (o.advantage_estimator == "cispo") {
    const double ratio = std::exp(d.sg[b][t] - d.old[b][t]);  // detached
    return -clip(ratio, 1 - o.eps_clip, 1 + o.eps_clip_high) * a * d.lp[b][t];
  }
  const double ppo_kl = o.advantage_estimator == "gspo" ? sequence_mean(d, b, d.old, d.lp) : d.old[b][t] - d.lp[b][t];
  const double ratio = std::exp(-ppo_kl);
  const double loss = std::max(-ratio * a, -clip(ratio, 1 - o.eps_clip, 1 + o.eps_clip_high) * a);
  return o.eps_clip_c && a < 0 ? std::min(-*o.eps_clip_c * a, loss) : loss;
}

double tis_weight(const TrainerBatch& d, const Slime& o, size_t b, size_t t) {
  if (o.tis.empty()) return 1;
  const double w = std::exp(d.old[b][t] - d.sampled[b][t]);
  if (o.tis == "vanilla") return clip(w, o.tis_clip_low, o.tis_clip);
  return w >= o.tis_clip_low && w <= o.tis_clip ? w : 0.0;
}

double approx_kl(const TrainerBatch& d, const Slime& o, size_t b, size_t t) {
  const double x = d.lp[b][t] - d.ref[b][t];
  double kl = o.kl_loss_type == "k1" ? x : o.kl_loss_type == "k2" ? x * x / 2 : std::exp(-x) - 1 + x;
  if (o.use_unbiased_kl) kl *= std::exp(d.lp[b][t] - d.old[b][t]);
  return o.kl_loss_type == "low_var_kl" ? clip(kl, -10, 10) : kl;
}

// The loss of a token, and what its sum is divided by: sum_of_sample_mean or sum_of_token.
Matrix slime_tokens(const TrainerBatch& d, const Slime& o) {
  return each(d, [&](size_t b, size_t t) {
    const bool dropped = o.use_opsm && d.advantage[b][t] < 0 && sequence_mean(d, b, d.old, d.sg) > o.opsm_delta;
    double loss = dropped ? 0.0 : policy_term(d, o, b, t) * tis_weight(d, o, b, t);
    if (o.entropy_coef != 0) loss -= o.entropy_coef * d.entropy[b][t];
    return o.kl_loss_type.empty() ? loss : loss + o.kl_loss_coef * approx_kl(d, o, b, t);
  });
}
double divisor(const TrainerBatch& d, const Slime& o, size_t b) {
  if (o.calculate_per_token_loss) return o.global_tokens;
  double rollout = 0;
  const size_t first = b / o.samples_per_rollout * o.samples_per_rollout;
  for (size_t s = first; s < first + o.samples_per_rollout; ++s) rollout += tokens_of(d.mask[s]);
  return std::max(rollout, 1.0) * o.global_batch_size;
}
double slime_loss(const TrainerBatch& d, const Slime& o) {
  const Matrix loss = slime_tokens(d, o);
  double sum = 0;
  for (size_t b = 0; b < d.sequences(); ++b) sum += row_sum(loss[b], d.mask[b]) / divisor(d, o, b);
  return sum;
}

// ---- the same arguments as parameters of policy_loss --------------------------------------------------------------

PolicyCase slime_case(const Slime& o, uint32_t seed) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  mask_some(c);
  Params& p = c.params;
  if (o.advantage_estimator == "cispo") p.kind = Kind::cispo;
  if (o.advantage_estimator == "gspo") p.importance_ratio = ImportanceRatio::sequence;
  p.clip_low = o.eps_clip;
  p.clip_high = o.eps_clip_high;
  p.dual_clip = o.eps_clip_c.value_or(0);
  p.opsm = o.use_opsm ? Opsm::old : Opsm::off;
  p.opsm_threshold = o.opsm_delta;
  if (o.tis.empty()) c.rollout_logp = {};
  p.rollout_is = o.tis == "icepop" ? RolloutIs::token_mask : RolloutIs::token_truncate;
  p.rollout_is_min = o.tis_clip_low;
  p.rollout_is_max = o.tis_clip;
  if (!o.kl_loss_type.empty()) {
    p.beta = o.kl_loss_coef;
    p.kl_kind = o.kl_loss_type == "k1" ? KlKind::k1 : o.kl_loss_type == "k2" ? KlKind::k2 : KlKind::k3;
    p.kl_value_clamp = o.kl_loss_type == "low_var_kl" ? 10 : 0;
    const bool gspo = o.advantage_estimator == "gspo";  // whose KL keeps the token's ratio
    p.kl_bias_correction = !o.use_unbiased_kl ? KlBiasCorrection::off
                           : gspo             ? KlBiasCorrection::token
                                              : KlBiasCorrection::on;
  }
  p.entropy_coefficient = o.entropy_coef;
  if (o.calculate_per_token_loss) {
    p.denominator = o.global_tokens;
  } else {
    p.aggregation = Aggregation::seq_mean_token_mean;
    p.denominator = o.global_batch_size;
  }
  return c;
}

void expect_slime(const Slime& o, PolicyCase& c) {
  expect_trainer(c, [&](const TrainerBatch& d) { return slime_loss(d, o); });
}
void expect_slime(const Slime& o, uint32_t seed) {
  PolicyCase c = slime_case(o, seed);
  expect_slime(o, c);
}

TEST(PolicySlime, EveryEstimatorWithItsDefaults) {
  for (const char* estimator : {"grpo", "gspo", "cispo"}) {
    SCOPED_TRACE(estimator);
    Slime o;
    o.advantage_estimator = estimator;
    expect_slime(o, 91);
  }
}

TEST(PolicySlime, CispoWithoutItsLowerBound) {
  Slime o;
  o.advantage_estimator = "cispo";
  o.eps_clip = 1.0;
  o.eps_clip_high = 0.4;
  expect_slime(o, 92);
}

TEST(PolicySlime, DualClipBoundsTheLossOfNegativeAdvantages) {
  for (const char* estimator : {"grpo", "gspo"}) {
    Slime o;
    o.advantage_estimator = estimator;
    o.eps_clip_c = 3.0;
    PolicyCase c = slime_case(o, 93);
    for (const int64_t t : {0, 1, 3, 4}) {  // ratio e^1.4 of every token of the first sequence
      c.logp.set(t, c.old_logp.get(t) + 1.4);
      c.advantages.set(t, t < 3 ? -1.5 : 0.5);
    }
    expect_slime(o, c);
    EXPECT_GT(run_policy_loss(c, backwards_parallel()).metrics[4], 0) << estimator;
  }
}

TEST(PolicySlime, TisAndIcepopWithTheirDefaultBounds) {
  for (const char* function : {"vanilla", "icepop"}) {
    Slime o;
    o.tis = function;
    PolicyCase c = slime_case(o, 94);
    c.rollout_logp.set(0, c.old_logp.get(0) - 1);  // weight e
    const TrainerBatch d = trainer_batch(c);
    const PolicyOutputs got = run_policy_loss(c, backwards_parallel());
    EXPECT_NEAR(got.per_token.get(0), policy_term(d, o, 0, 0) * (o.tis == "icepop" ? 0.0 : 2.0), 1e-13);
    expect_slime(o, c);
  }
}

TEST(PolicySlime, OpsmDropsSequencesFarFromTheOldPolicyWithNegativeAdvantage) {
  Slime o;
  o.use_opsm = true;
  o.tis = "vanilla";
  o.kl_loss_type = "k2";  // which neither multiplies
  PolicyCase c = slime_case(o, 95);
  for (int64_t i = 6; i < 18; ++i) {  // a little beyond the default threshold, and a little inside of it
    if (c.mask.get_int(i) == 0) continue;
    c.logp.set(i, c.old_logp.get(i) - (i < 12 ? 1.2e-4 : 0.8e-4));
    c.advantages.set(i, -0.9);
  }
  const TrainerBatch d = trainer_batch(c);
  int dropped = 0, kept = 0;
  for (size_t i = 0; i < 24; ++i) {
    if (d.mask[i / 6][i % 6] == 0 || d.advantage[i / 6][i % 6] >= 0) continue;
    ++(sequence_mean(d, i / 6, d.old, d.sg) > o.opsm_delta ? dropped : kept);
  }
  EXPECT_GT(dropped, 0);
  EXPECT_GT(kept, 0);
  expect_slime(o, c);
}

TEST(PolicySlime, EveryKindOfKlLoss) {
  for (const char* kind : {"k1", "k2", "k3", "low_var_kl"}) {
    SCOPED_TRACE(kind);
    Slime o;
    o.kl_loss_type = kind;
    PolicyCase c = slime_case(o, 96);
    c.ref_logp.set(0, c.logp.get(0) + 3);  // k3 of 16: beyond the clamp of low_var_kl, which is the only one
    expect_slime(o, c);
  }
}

TEST(PolicySlime, TheUnbiasedKlIsMultipliedByTheTokensRatioBeforeItsClamp) {
  for (const char* estimator : {"grpo", "gspo"}) {
    for (const char* kind : {"k1", "k2", "k3", "low_var_kl"}) {
      SCOPED_TRACE(std::string(estimator) + " " + kind);
      Slime o;
      o.advantage_estimator = estimator;
      o.kl_loss_type = kind;
      o.use_unbiased_kl = true;
      PolicyCase c = slime_case(o, 97);
      c.ref_logp.set(0, c.logp.get(0) + 3);    // k3 of 16
      c.ref_logp.set(6, c.logp.get(6) + 2.5);  // k3 of 8.7, beyond the clamp with its ratio of 1.5
      c.old_logp.set(6, c.logp.get(6) - 0.405465);
      expect_slime(o, c);
    }
  }
}

TEST(PolicySlime, EntropyLossIsAggregatedLikeThePolicyLoss) {
  Slime o;
  o.entropy_coef = 0.01;
  PolicyCase c = slime_case(o, 98);
  expect_slime(o, c);
  EXPECT_NEAR(run_policy_loss_backward(c, backwards_parallel()).grad_entropy.get(0), -0.01 / 4 / 6, 1e-16);
}

TEST(PolicySlime, PerTokenLossIsDividedByTheTokensOfTheGlobalBatch) {
  Slime o;
  o.calculate_per_token_loss = true;
  expect_slime(o, 99);
}

// A rollout of several samples: each token is divided by the tokens of its rollout. Where nothing is of the sample, a
// rollout is passed as one sequence.
TEST(PolicySlime, ARolloutOfSeveralSamplesIsOneSequenceOfTheMean) {
  Slime o;
  o.samples_per_rollout = 2;
  o.kl_loss_type = "k1";
  const PolicyCase samples = slime_case(o, 100);
  const TrainerBatch d = trainer_batch(samples);
  PolicyCase rollouts = samples;
  for (Tensor* tensor :
       {&rollouts.logp, &rollouts.old_logp, &rollouts.ref_logp, &rollouts.advantages, &rollouts.entropy}) {
    const Tensor from = *tensor;
    *tensor = Tensor(Dtype::f64, {2, 12}).fill([&](int64_t i) { return from.get(i); });
  }
  rollouts.mask = Tensor(Dtype::u8, {2, 12});
  for (int64_t i = 0; i < 24; ++i) rollouts.mask.set_int(i, samples.mask.get_int(i));
  expect_trainer(rollouts, [&](const TrainerBatch& two) {
    TrainerBatch four = d;
    for (size_t i = 0; i < 24; ++i) four.lp[i / 6][i % 6] = two.lp[i / 12][i % 12];
    return slime_loss(four, o);
  });
  PolicyCase one_by_one = samples;  // which is not the mean over samples
  EXPECT_NE(run_policy_loss(one_by_one, backwards_parallel()).loss, slime_loss(d, o));
}

// With ratios or masks of the sample, the tokens are weighed by the caller.
TEST(PolicySlime, GspoAndOpsmOfRolloutsOfSeveralSamplesWeighTheirTokens) {
  Slime o;
  o.advantage_estimator = "gspo";
  o.samples_per_rollout = 2;
  o.use_opsm = true;
  PolicyCase c = slime_case(o, 101);
  const TrainerBatch d = trainer_batch(c);
  c.params.aggregation = Aggregation::none;
  c.grad_per_token =
      Tensor(Dtype::f64, {4, 6}).fill([&](int64_t i) { return 1 / divisor(d, o, static_cast<size_t>(i / 6)); });
  const PolicyOutputs got = run_policy_loss(c, backwards_parallel());
  const auto gradients = run_policy_loss_backward(c, backwards_parallel());
  double loss = 0;
  for (int64_t i = 0; i < 24; ++i) loss += got.per_token.get(i) * c.grad_per_token.get(i);
  EXPECT_NEAR(loss, slime_loss(d, o), 1e-14);
  for (size_t i = 0; i < 24; ++i) {
    if (d.mask[i / 6][i % 6] == 0) continue;
    TrainerBatch above = d, below = d;
    above.lp[i / 6][i % 6] += 1e-5;
    below.lp[i / 6][i % 6] -= 1e-5;
    const double slope = (slime_loss(above, o) - slime_loss(below, o)) / 2e-5;
    EXPECT_NEAR(gradients.grad_logp.get(static_cast<int64_t>(i)), slope, 1e-9) << i;
  }
}

}  // namespace
}  // namespace rlk::test
