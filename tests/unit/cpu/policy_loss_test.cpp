// What policy_loss promises beside the trainers' formulas: kinks, conflicts, masks, layouts, metrics, data errors.
#include <rlk/sdk/ops/policy_loss.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include <cmath>
#include <limits>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations
using ops::policy_loss_backward::ClampGradient;

double loss_of(PolicyCase& c) {
  return run_policy_loss(c).loss;
}
// The kernel's gradient, which must be golden's too.
double slope_of(PolicyCase& c) {
  const double slope = run_policy_loss_backward(c).grad_logp.get(0);
  EXPECT_NEAR(slope, golden_answer(backward_call(c)).grad_logp.value[0], 1e-14);
  return slope;
}

// By clamp_gradient zero, half and pass.
std::vector<double> slopes_of(PolicyCase c) {
  std::vector<double> slopes;
  for (const ClampGradient rule : {ClampGradient::zero, ClampGradient::half, ClampGradient::pass}) {
    c.clamp_gradient = rule;
    slopes.push_back(slope_of(c));
  }
  return slopes;
}
using Slopes = std::vector<double>;

// min(rho A, clamp(rho) A) is a tie at the bound: half of the gradient is that of rho, half goes through the clamp.
TEST(PolicyLoss, TheClipPassesWhatIsAskedForAtItsBound) {
  const double ratio = std::exp(0.25);
  PolicyCase c = one_token(-0.75, -1, 1.0);
  c.params.clip_high = ratio - 1;
  EXPECT_EQ(slope_of(c), -ratio / 2);  // TRL under torch 2.15
  EXPECT_EQ(slopes_of(c), (Slopes{-ratio / 2, -0.75 * ratio, -ratio}));

  c = one_token(-1, -1, 2.0);  // ratio exactly 1
  c.params.clip_high = 0;      // the bound is exactly 1
  EXPECT_EQ(slopes_of(c), (Slopes{-1, -1.5, -2}));
  c.params.clip_low = 0;  // both are
  EXPECT_EQ(slopes_of(c), (Slopes{-1, -1.25, -2}));
  c.params.clip_low = 0.2;
  c.logp.set(0, -1 + 1e-9);  // just outside: the clipped term is larger and flat
  EXPECT_EQ(slopes_of(c), (Slopes{0, 0, 0}));
  c.logp.set(0, -1 - 1e-9);
  for (const double slope : slopes_of(c)) EXPECT_NEAR(slope, -2.0, 1e-8);

  c = one_token(-1, -1, -2.0);
  c.params.clip_low = 0;
  EXPECT_EQ(slopes_of(c), (Slopes{1, 1.5, 2}));
  c.logp.set(0, -1 - 1e-9);
  EXPECT_EQ(slopes_of(c), (Slopes{0, 0, 0}));
  c.logp.set(0, -1 + 1e-9);
  for (const double slope : slopes_of(c)) EXPECT_NEAR(slope, 2.0, 1e-8);
}

// verl's geo_mean: sign min(sign x, sign clamp(x)), a tie at either bound, whatever the sign.
TEST(PolicyLoss, TheClipOfGmpoPassesWhatIsAskedForAtItsBounds) {
  for (const double advantage : {2.0, -2.0}) {
    for (const double x : {0.25, -0.25}) {
      PolicyCase c = one_token(-1 + x, -1, advantage);
      c.params.kind = Kind::gmpo;
      c.params.clip_low = c.params.clip_high = 0.25;
      const double whole = -advantage * std::exp(x);
      EXPECT_EQ(slopes_of(c), (Slopes{whole / 2, 0.75 * whole, whole})) << advantage << " " << x;
    }
  }
}

TEST(PolicyLoss, DualClipSplitsTheGradientAtAnExactTie) {
  const double ratio = std::exp(-0.3 + 1.0);
  PolicyCase c = one_token(-0.3, -1, -2.0);
  c.params.dual_clip = ratio;
  EXPECT_DOUBLE_EQ(slope_of(c), ratio);  // half of 2 ratio
  EXPECT_DOUBLE_EQ(loss_of(c), 2 * ratio);
  c.params.dual_clip = ratio * (1 + 1e-12);
  EXPECT_DOUBLE_EQ(slope_of(c), 2 * ratio);
  c.params.dual_clip = ratio * (1 - 1e-12);
  EXPECT_EQ(slope_of(c), 0);
  EXPECT_DOUBLE_EQ(loss_of(c), 2 * c.params.dual_clip);
  c.advantages.set(0, 2.0);  // positive advantages have no dual clip
  EXPECT_DOUBLE_EQ(loss_of(c), -2 * 1.2);
}

TEST(PolicyLoss, DeltaPassesWhatIsAskedForAtEqualityAndStopsTheGradientAbove) {
  const double ratio = std::exp(-0.3 + 1.0);
  PolicyCase c = one_token(-0.3, -1, -2.0);
  c.params.delta = ratio;
  EXPECT_EQ(slopes_of(c), (Slopes{0, ratio, 2 * ratio}));
  c.params.delta = ratio * (1 - 1e-12);
  EXPECT_EQ(slopes_of(c), (Slopes{0, 0, 0}));
  EXPECT_DOUBLE_EQ(loss_of(c), 2 * c.params.delta);
  c.params.delta = ratio * (1 + 1e-12);
  EXPECT_EQ(slopes_of(c), (Slopes{2 * ratio, 2 * ratio, 2 * ratio}));
}

TEST(PolicyLoss, SapoIsFlatWhereTheRatioOverflows) {
  PolicyCase c = one_token(-0.5, -2000, 2.0);
  c.params.kind = Kind::sapo;
  EXPECT_DOUBLE_EQ(loss_of(c), -4 * 2.0);
  EXPECT_EQ(slope_of(c), 0);
}

TEST(PolicyLoss, GmpoTokensWithoutAnAdvantageLeaveTheGeometricMeanAlone) {
  PolicyCase c = make_policy_case(Dtype::f64, 1, 3, 48);
  c.params.kind = Kind::gmpo;
  c.params.clip_low = c.params.clip_high = 10;
  c.ref_logp = c.rollout_logp = c.sequence_advantages = {};
  c.advantages.set(0, 1).set(1, 0).set(2, 2);
  const auto x = [&](int64_t i) { return c.logp.get(i) - c.old_logp.get(i); };
  const double expected = -(3.0 / 3) * std::exp((x(0) + x(2)) / 3);
  c.weight = {};
  EXPECT_NEAR(loss_of(c), expected, 1e-14);
  EXPECT_EQ(run_policy_loss_backward(c).grad_logp.get(1), 0);
  c.logp.set(1, std::numeric_limits<double>::quiet_NaN());  // a broken forward shows, whatever its advantage
  EXPECT_TRUE(std::isnan(loss_of(c)));
  EXPECT_TRUE(std::isnan(run_policy_loss_backward(c).grad_logp.get(0)));
}

// Good to a few ulp, as an exponential is.
void expect_slopes_up_to(double most, PolicyCase& c) {
  const Slopes slopes = slopes_of(c);
  ASSERT_EQ(slopes.size(), 3u);
  EXPECT_EQ(slopes[0], 0);
  EXPECT_DOUBLE_EQ(slopes[1], most / 2);
  EXPECT_DOUBLE_EQ(slopes[2], most);
}

TEST(PolicyLoss, LogRatioClampsOnEachSidePassWhatIsAskedForAtEquality) {
  for (const ImportanceRatio of : {ImportanceRatio::token, ImportanceRatio::sequence}) {
    PolicyCase c = one_token(-0.5, -1, -2.0);
    c.params.importance_ratio = of;
    c.params.log_ratio_clamp_high = 0.5;
    expect_slopes_up_to(2 * std::exp(0.5), c);
    c.logp.set(0, -0.25);
    EXPECT_EQ(slope_of(c), 0);
    EXPECT_DOUBLE_EQ(loss_of(c), 2 * std::exp(0.5));
    c = one_token(-1.5, -1, 2.0);
    c.params.importance_ratio = of;
    c.params.log_ratio_clamp_low = 0.5;
    expect_slopes_up_to(-2 * std::exp(-0.5), c);
    c.logp.set(0, -3);
    EXPECT_EQ(slope_of(c), 0);
    EXPECT_DOUBLE_EQ(loss_of(c), -2 * std::exp(-0.5));
  }
}

TEST(PolicyLoss, KlClampsAreOffOrBoundDifferenceAndValue) {
  PolicyCase c = one_token(-3, -3, 0.0);
  c.ref_logp = Tensor(Dtype::f64, {1, 1}).set(0, -1);
  c.params.beta = 1;
  EXPECT_DOUBLE_EQ(loss_of(c), std::exp(2.0) - 2 - 1);
  EXPECT_NEAR(slope_of(c), 1 - std::exp(2.0), 1e-14);
  c.params.kl_diff_clamp = 1.5;
  EXPECT_DOUBLE_EQ(loss_of(c), std::exp(1.5) - 1.5 - 1);
  EXPECT_EQ(slope_of(c), 0);
  c.params.kl_diff_clamp = 0;
  c.params.kl_kind = KlKind::k1;
  c.params.kl_value_clamp = 2;  // reached exactly: k1 = -2
  EXPECT_EQ(loss_of(c), -2);
  EXPECT_EQ(slopes_of(c), (Slopes{0, 0.5, 1}));
  c.params.kl_diff_clamp = 2;  // both
  EXPECT_EQ(slopes_of(c), (Slopes{0, 0.25, 1}));
  c.params.kl_value_clamp = 0;
  EXPECT_EQ(slopes_of(c), (Slopes{0, 0.5, 1}));
  c.params.kl_diff_clamp = 0;
  c.params.kl_value_clamp = 1.75;
  EXPECT_EQ(loss_of(c), -1.75);
  EXPECT_EQ(slope_of(c), 0);
  c.params.kl_value_clamp = 0;
  c.params.kl_kind = KlKind::abs;
  c.ref_logp.set(0, -3);
  EXPECT_EQ(slope_of(c), 0);  // as torch.abs
}

TEST(PolicyLoss, TheKlOfAnImpossibleTokenIsInfiniteAndItsClampBoundsIt) {
  PolicyCase c = one_token(-kInfinity, -1, 0.0);
  c.ref_logp = Tensor(Dtype::f64, {1, 1}).set(0, -1);
  c.params.beta = 1;
  const auto expect_loss = [&](double expected) {
    EXPECT_EQ(loss_of(c), expected);
    EXPECT_EQ(golden_answer(c).loss.value[0], expected);
  };
  expect_loss(kInfinity);
  c.params.kl_value_clamp = 10;
  expect_loss(10);
  EXPECT_EQ(slope_of(c), 0);
  c.params.kl_kind = KlKind::k1;
  expect_loss(-10);
  EXPECT_EQ(slope_of(c), 0);
}

TEST(PolicyLoss, GspoFormsHaveOneValueAndTwoGradients) {
  PolicyCase c = make_policy_case(Dtype::f64, 3, 8, 41);
  mask_some(c);
  c.rollout_logp = {};
  c.params.importance_ratio = ImportanceRatio::sequence;
  const double loss = loss_of(c);
  const Tensor plain = run_policy_loss_backward(c).grad_logp;
  c.params.importance_ratio = ImportanceRatio::sequence_token;
  EXPECT_DOUBLE_EQ(loss_of(c), loss);
  const Tensor of_token = run_policy_loss_backward(c).grad_logp;
  double sum_plain = 0, sum_of_token = 0, largest = 0;
  for (int64_t t = 0; t < 8; ++t) {
    sum_plain += plain.get(t);
    sum_of_token += of_token.get(t);
    largest = std::max(largest, std::fabs(plain.get(t) - of_token.get(t)));
  }
  EXPECT_GT(largest, 1e-3);                     // different advantages in one sequence
  EXPECT_NEAR(sum_plain, sum_of_token, 1e-12);  // but the same sum over it
}

TEST(PolicyLoss, ABoundOfInfinityIsNone) {
  using Bound = double Params::*;
  const std::pair<Bound, double> bounds[] = {
      // and a number that is none either: 0, or one far away
      {&Params::clip_low, 1e300},      {&Params::clip_high, 1e300},        {&Params::delta, 0},
      {&Params::dual_clip, 0},         {&Params::log_ratio_clamp_low, 0},  {&Params::log_ratio_clamp_high, 0},
      {&Params::kl_diff_clamp, 0},     {&Params::kl_value_clamp, 0},       {&Params::rollout_is_max, 1e300},
      {&Params::rollout_log_clamp, 0}, {&Params::reject_token_k1_high, 0}, {&Params::reject_sequence_max_k3_high, 0}};
  for (const Kind kind : {Kind::ppo, Kind::gmpo}) {
    for (const auto& [bound, none] : bounds) {
      if (kind == Kind::gmpo && (bound == &Params::delta || bound == &Params::dual_clip)) continue;
      PolicyCase c = make_policy_case(Dtype::f64, 3, 7, 11);
      c.params.kind = kind;
      c.params.beta = 0.3;
      c.params.*bound = none;
      const double loss = run_policy_loss(c).loss;
      const Tensor gradient = run_policy_loss_backward(c).grad_logp;
      EXPECT_NE(loss, 0);
      c.params.*bound = kInfinity;
      EXPECT_EQ(run_policy_loss(c).loss, loss);
      EXPECT_EQ(run_policy_loss_backward(c).grad_logp.bytes(), gradient.bytes());
      const auto golden = golden_answer(backward_call(c)).grad_logp;
      for (int64_t i = 0; i < gradient.size(); ++i) {
        EXPECT_NEAR(golden.value[static_cast<size_t>(i)], gradient.get(i), 1e-13);
      }
    }
  }
}

TEST(PolicyLoss, EmptySequencesCountOrNot) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 42);
  mask_some(c);  // the last of four sequences is empty
  c.rollout_logp = {};
  for (const Aggregation mode : {Aggregation::seq_mean_token_mean, Aggregation::seq_mean_token_sum}) {
    c.params.aggregation = mode;
    c.params.exclude_empty_sequences = ExcludeEmptySequences::off;
    const double counted = loss_of(c);
    c.params.exclude_empty_sequences = ExcludeEmptySequences::on;
    EXPECT_NEAR(loss_of(c), counted * 4 / 3, 1e-14);
    c.params.denominator = 2;  // an explicit one is not corrected
    EXPECT_NEAR(loss_of(c), counted * 2, 1e-14);
    c.params.denominator = 0;
  }
  c.params.aggregation = Aggregation::seq_mean_token_mean;
  const double natural = loss_of(c);
  c.params.seq_denominator_floor = 8;  // more than the 4 tokens of each
  EXPECT_NEAR(loss_of(c), natural / 2, 1e-14);
}

TEST(PolicyLoss, NothingActiveGivesZeroAndNoNan) {
  for (const bool rejected : {false, true}) {
    PolicyCase c = make_policy_case(Dtype::f64, 2, 3, 43);
    c.params.exclude_empty_sequences = ExcludeEmptySequences::on;
    c.params.rollout_is_normalize = RolloutIsNormalize::on;
    c.params.top_entropy_quantile = 0.5;
    c.params.entropy_coefficient = 1;
    if (rejected) {
      c.params.reject_token_k2_high = 1e-12;
    } else {
      c.mask = Tensor(Dtype::u8, {2, 3});
      for (int64_t i = 0; i < 6; ++i) c.mask.set_int(i, 0);
    }
    for (const Aggregation mode : {Aggregation::token_mean, Aggregation::token_sum, Aggregation::seq_mean_token_mean,
                                   Aggregation::seq_mean_token_sum, Aggregation::none}) {
      for (const Kind kind : {Kind::ppo, Kind::gmpo, Kind::vespo}) {
        c.params.kind = kind;
        c.params.aggregation = mode;
        c.params.entropy_aggregation =
            mode == Aggregation::none ? EntropyAggregation::as_loss : EntropyAggregation::token_mean;
        c.grad_per_token = mode == Aggregation::none ? c.advantages : Tensor();
        const PolicyOutputs got = run_policy_loss(c);
        const auto gradients = run_policy_loss_backward(c);
        EXPECT_EQ(got.loss, 0);
        for (int64_t i = 0; i < 6; ++i) {
          EXPECT_EQ(got.per_token.get(i), 0);
          EXPECT_EQ(gradients.grad_logp.get(i), 0);
          EXPECT_EQ(gradients.grad_entropy.get(i), 0);
        }
        for (size_t m = 0; m < RLK_POLICY_LOSS_METRICS_REJECTED; ++m) EXPECT_EQ(got.metrics[m], 0) << m;
        EXPECT_EQ(got.metrics[RLK_POLICY_LOSS_METRICS_REJECTED], rejected ? 1 : 0);
      }
    }
  }
}

TEST(PolicyLoss, WithoutAggregationTheGradientIsThatOfPerToken) {
  PolicyCase c = make_policy_case(Dtype::f64, 2, 5, 45);
  c.params.aggregation = Aggregation::none;
  c.grad_per_token = random_tensor(Dtype::f64, {2, 5}, 1.0, 7);
  EXPECT_EQ(loss_of(c), 0);
  const Tensor gradient = run_policy_loss_backward(c).grad_logp;
  PolicyCase one = c;
  one.grad_per_token = {};
  one.params.aggregation = Aggregation::token_sum;
  const Tensor plain = run_policy_loss_backward(one).grad_logp;
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(gradient.get(i), plain.get(i) * c.grad_per_token.get(i), 1e-14) << i;
  }
}

TEST(PolicyLoss, TokenWeightsAndSequenceAdvantagesApply) {
  PolicyCase c = make_policy_case(Dtype::f64, 2, 4, 46);
  c.rollout_logp = {};
  PolicyCase expanded = c;
  c.sequence_advantages = Tensor(Dtype::f64, {2}).set(0, 0.5).set(1, -1.5);
  for (int64_t i = 0; i < 8; ++i) expanded.advantages.set(i, c.advantages.get(i) + (i < 4 ? 0.5 : -1.5));
  EXPECT_DOUBLE_EQ(loss_of(c), loss_of(expanded));
  PolicyCase packed = packed_of(c);
  EXPECT_DOUBLE_EQ(loss_of(packed), loss_of(expanded));
  const Tensor before = run_policy_loss(c).per_token;
  c.weight = Tensor(Dtype::f64, {2, 4}).fill([](int64_t i) { return 0.25 * static_cast<double>(i); });
  c.params.beta = 1;  // the weight is not applied to the KL
  const Tensor after = run_policy_loss(c).per_token;
  for (int64_t i = 0; i < 8; ++i) {
    const double d = c.ref_logp.get(i) - c.logp.get(i);
    EXPECT_NEAR(after.get(i), before.get(i) * 0.25 * static_cast<double>(i) + std::exp(d) - d - 1, 1e-13) << i;
  }
}

TEST(PolicyLoss, MetricsAreMeansOverActiveTokens) {
  PolicyCase c;
  const double log_ratios[] = {std::log(1.5), std::log(0.5), std::log(2.5), std::log(1.1), 9.0, std::log(0.7)};
  const double advantages[] = {1, -1, -1, 1, 1, 1};
  c.old_logp = Tensor(Dtype::f64, {1, 6}).fill([](int64_t) { return -2.0; });
  c.logp = Tensor(Dtype::f64, {1, 6}).fill([&](int64_t i) { return -2.0 + log_ratios[i]; });
  c.advantages = Tensor(Dtype::f64, {1, 6}).fill([&](int64_t i) { return advantages[i]; });
  c.ref_logp = c.logp;
  c.ref_logp.set(0, c.logp.get(0) + 1);
  c.entropy = Tensor(Dtype::f64, {1, 6}).fill([](int64_t i) { return static_cast<double>(i); });
  c.rollout_logp = c.old_logp;
  c.rollout_logp.set(1, -2 - std::log(2.0)).set(5, -2 - 3.0);  // weights 2 and e^3, the last is rejected
  c.mask = Tensor(Dtype::u8, {1, 6});
  for (int64_t i = 0; i < 6; ++i) c.mask.set_int(i, i == 4 ? 0 : 1);
  c.params.dual_clip = 2;
  c.params.reject_token_k1_low = 0.3;
  const std::vector<double> m = run_policy_loss(c).metrics;
  EXPECT_EQ(m[RLK_POLICY_LOSS_METRICS_ACTIVE_TOKENS], 4);
  EXPECT_NEAR(m[RLK_POLICY_LOSS_METRICS_KL], (std::exp(1.0) - 2) / 4, 1e-14);
  EXPECT_NEAR(m[RLK_POLICY_LOSS_METRICS_PPO_KL], -(log_ratios[0] + log_ratios[1] + log_ratios[2] + log_ratios[3]) / 4,
              1e-14);
  EXPECT_EQ(m[RLK_POLICY_LOSS_METRICS_CLIP_FRACTION], 2.0 / 4);        // 1.5 with A > 0, 0.5 with A < 0
  EXPECT_EQ(m[RLK_POLICY_LOSS_METRICS_CLIP_FRACTION_LOWER], 1.0 / 4);  // 2.5 with A < 0 is over the dual clip
  EXPECT_EQ(m[RLK_POLICY_LOSS_METRICS_CLIP_RATIO_LOW], 1.0 / 4);
  EXPECT_EQ(m[RLK_POLICY_LOSS_METRICS_CLIP_RATIO_HIGH], 1.0 / 4);
  EXPECT_NEAR(m[RLK_POLICY_LOSS_METRICS_RATIO], (1.5 + 0.5 + 2.5 + 1.1) / 4, 1e-14);
  EXPECT_EQ(m[RLK_POLICY_LOSS_METRICS_ENTROPY], (0.0 + 1 + 2 + 3) / 4);
  EXPECT_EQ(m[RLK_POLICY_LOSS_METRICS_PHI], 0);
  EXPECT_NEAR(m[RLK_POLICY_LOSS_METRICS_ROLLOUT_WEIGHT], (1 + 2 + 1 + 1) / 4.0, 1e-14);
  EXPECT_NEAR(m[RLK_POLICY_LOSS_METRICS_REJECTED], 1.0 / 5, 1e-15);
}

// rollout_is_eff_sample_size of verl's rollout_corr_helper, and per-sequence means as TRL and OpenRLHF log them.
TEST(PolicyLoss, TheEffectiveShareAndTheMetricsOfSequencesAreTheTrainers) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 51);
  mask_some(c);
  c.params.rollout_is_max = 1.4;
  c.params.reject_token_k2_high = 0.4;
  c.sequence_metrics = wanted();
  const auto got = run(c);
  const TrainerBatch d = trainer_batch(c);
  double n = 0, sum = 0, squares = 0;
  for (size_t b = 0; b < 4; ++b) {
    double unmasked = 0, active = 0, clipped = 0, kl = 0;
    for (size_t t = 0; t < 6; ++t) {
      if (d.mask[b][t] == 0) continue;
      const double r = d.old[b][t] - d.sampled[b][t], w = std::min(std::exp(r), 1.4);
      n += 1;
      sum += w;
      squares += w * w;
      unmasked += 1;
      if (r * r / 2 > 0.4) continue;
      const double ratio = std::exp(d.lp[b][t] - d.old[b][t]), a = d.advantage[b][t], x = d.ref[b][t] - d.lp[b][t];
      active += 1;
      clipped += -clip(ratio, 0.8, 1.2) * a > -ratio * a ? 1 : 0;
      kl += std::exp(x) - x - 1;
    }
    const auto metric = [&](int64_t i) { return got.sequence_metrics.get(static_cast<int64_t>(b) * 13 + i); };
    EXPECT_EQ(metric(0), active);
    EXPECT_NEAR(metric(1), active > 0 ? kl / active : 0, 1e-14);
    EXPECT_NEAR(metric(3), active > 0 ? clipped / active : 0, 1e-14);
    EXPECT_NEAR(metric(12), unmasked > 0 ? (unmasked - active) / unmasked : 0, 1e-14);
  }
  EXPECT_EQ(d.mask[3], Row(6, 0.0));  // an empty sequence is among them
  const double mean = sum / n;
  EXPECT_NEAR(got.metrics.get(RLK_POLICY_LOSS_METRICS_ROLLOUT_ESS), 1 / (squares / n / (mean * mean)), 1e-14);
  const auto golden = golden_answer(c);
  for (int64_t i = 0; i < 15; ++i) EXPECT_NEAR(golden.metrics.value[static_cast<size_t>(i)], got.metrics.get(i), 1e-14);
  for (int64_t i = 0; i < 52; ++i) {
    EXPECT_NEAR(golden.sequence_metrics.value[static_cast<size_t>(i)], got.sequence_metrics.get(i), 1e-14) << i;
  }
}

TEST(PolicyLoss, BitsDoNotDependOnThreadsOrOnTheOtherSequences) {
  PolicyCase c = make_policy_case(Dtype::f32, 37, 90, 48, Strides::gaps);
  mask_some(c);
  c.params.kind = Kind::gmpo;
  c.params.beta = 0.1;
  c.params.aggregation = Aggregation::seq_mean_token_mean;
  for (const bool combined : {true, false}) {  // with what tokens take from the whole batch, and without
    c.params.top_entropy_quantile = combined ? 0.4 : 1.0;
    c.params.rollout_is_normalize = combined ? RolloutIsNormalize::on : RolloutIsNormalize::off;
    c.params.entropy_coefficient = combined ? 0.1 : 0.0;
    c.params.entropy_aggregation = EntropyAggregation::token_mean;
    const PolicyOutputs serial = run_policy_loss(c);
    const auto serial_gradients = run_policy_loss_backward(c);
    for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
      const PolicyOutputs again = run_policy_loss(c, hook);
      const auto gradients = run_policy_loss_backward(c, hook);
      EXPECT_EQ(again.loss, serial.loss);
      EXPECT_EQ(again.metrics, serial.metrics);
      EXPECT_EQ(again.per_token.bytes(), serial.per_token.bytes());
      EXPECT_EQ(gradients.grad_logp.bytes(), serial_gradients.grad_logp.bytes());
      EXPECT_EQ(gradients.grad_entropy.bytes(), serial_gradients.grad_entropy.bytes());
    }
  }
  const PolicyOutputs serial = run_policy_loss(c);
  c.per_token = Tensor(Dtype::f32, {37, 90}, Strides::reversed);
  const PolicyOutputs reversed = run_policy_loss(c);
  EXPECT_EQ(reversed.per_token.bits(0, 37 * 90), serial.per_token.bits(0, 37 * 90));
}

TEST(PolicyLoss, AGradientThatIsWrittenPastTheCachesHasTheSameBits) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const int64_t tokens : {257, 300}) {
      const PolicyCase c = make_policy_case(dtype, 2, tokens, 5);
      const Tensor one = numbers({1}, {1}, Dtype::f32);
      const auto gradient = [&](bool past_caches, bool in_place) {
        Tensor result = in_place ? c.logp : Tensor(dtype, {2, tokens});
        cpu::CallOf<ops::PolicyLossBackward> call;
        call.logp = array_of(in_place ? result : c.logp);
        call.old_logp = array_of(c.old_logp);
        call.advantages = array_of(c.advantages);
        call.grad_loss = array_of(one);
        call.grad_logp = array_of(result);
        call.grad_logp.exceeds_caches = past_caches;
        call.B = 2;
        call.T = tokens;
        std::vector<double> workspace(1 << 10);
        const cpu::Context context = {cpu::serial_parallel(), workspace.data()};
        EXPECT_EQ(cpu::kernel<ops::PolicyLossBackward>().run(call, context).kind, cpu::kNoDataError);
        return list_of(result);
      };
      const List expected = gradient(false, false);
      EXPECT_EQ(gradient(true, false), expected) << name(dtype) << tokens;
      EXPECT_EQ(gradient(true, true), expected) << name(dtype) << tokens;
    }
  }
}

}  // namespace
}  // namespace rlk::test
