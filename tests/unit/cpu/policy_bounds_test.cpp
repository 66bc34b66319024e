// policy_loss exactly at its bounds, and where its numbers end: probabilities of 1, weights of 0 and infinity,
// advantages of 0, a coefficient of 1, sequences of several chunks.
#include <rlk/sdk/ops/policy_loss.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include <cmath>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

// The kernel's, which must be golden's too.
double metric_of(const PolicyCase& c, size_t metric) {
  const double got = run_policy_loss(c).metrics[metric], golden = golden_answer(c).metrics.value[metric];
  EXPECT_TRUE(got == golden || std::fabs(got - golden) <= 1e-12 * std::fabs(golden)) << got << " not " << golden;
  return got;
}

// clip_fraction, clip_fraction_lower, clip_ratio_low and clip_ratio_high.
using Fractions = std::vector<double>;
Fractions fractions_of(const PolicyCase& c) {
  Fractions fractions;
  for (size_t metric = RLK_POLICY_LOSS_METRICS_CLIP_FRACTION; metric <= RLK_POLICY_LOSS_METRICS_CLIP_RATIO_HIGH;
       ++metric) {
    fractions.push_back(metric_of(c, metric));
  }
  return fractions;
}

bool is_dppo(Kind kind) {
  return kind == Kind::dppo_tv || kind == Kind::dppo_kl;
}

TEST(PolicyBounds, ARatioThatIsABoundIsInside) {
  for (const Kind kind : {Kind::ppo, Kind::cispo, Kind::gmpo, Kind::dppo_tv, Kind::dppo_kl}) {
    for (const double advantage : {1.0, -1.0}) {
      PolicyCase c = one_token(-1, -1, advantage);
      c.params.kind = kind;
      c.params.clip_low = c.params.clip_high = 0;
      c.params.delta = is_dppo(kind) ? 1 : 0;
      EXPECT_EQ(fractions_of(c), (Fractions{0, 0, 0, 0})) << static_cast<int>(kind) << " " << advantage;
    }
  }
}

TEST(PolicyBounds, ATokenWithoutAnAdvantageIsOnNeitherSide) {
  for (const Kind kind : {Kind::ppo, Kind::cispo, Kind::gmpo, Kind::dppo_tv}) {
    for (const double x : {1.0, -1.0}) {
      PolicyCase c = one_token(-2 + x, -2, 0);
      c.params.kind = kind;
      const bool changes = kind == Kind::cispo || (is_dppo(kind) && x < 0);  // dppo asks whether p fell
      c.params.clip_low = is_dppo(kind) ? 0.05 : 0.2;
      EXPECT_EQ(fractions_of(c), (Fractions{changes ? 1.0 : 0.0, 0, 0, 0})) << static_cast<int>(kind) << " " << x;
    }
  }
  PolicyCase c = one_token(-1, -1.5, 0);
  c.params.kind = Kind::vespo;
  EXPECT_NEAR(metric_of(c, RLK_POLICY_LOSS_METRICS_PHI), std::exp(3 + 2 * 0.5 - 3 * std::exp(0.5)), 1e-15);
}

TEST(PolicyBounds, OpsmDropsNoTokenWithoutAnAdvantage) {
  PolicyCase c = one_token(-2, -1, 0);
  c.params.kind = Kind::dro;
  c.params.opsm = Opsm::old;
  EXPECT_DOUBLE_EQ(run_policy_loss(c).loss, 0.05);
  EXPECT_DOUBLE_EQ(golden_answer(c).loss.value[0], 0.05);
}

TEST(PolicyBounds, DppoKlOfACertainTokenIsFiniteAndWithoutADivergenceItIsDropped) {
  const auto dropped = [](double logp, double old_logp, double advantage, double clip) {
    PolicyCase c = one_token(logp, old_logp, advantage);
    c.params.kind = Kind::dppo_kl;
    c.params.clip_low = c.params.clip_high = clip;
    return metric_of(c, RLK_POLICY_LOSS_METRICS_CLIP_FRACTION);
  };
  EXPECT_EQ(dropped(0, -0.001, 1, 0.2), 0);
  EXPECT_EQ(dropped(-0.5, 0, -1, 0.6), 0);
  EXPECT_EQ(dropped(-0.5, 0, -1, 0.4), 1);
  EXPECT_EQ(dropped(0.5, -1, 1, 0.2), 1);  // no probability: the divergence is NaN
}

TEST(PolicyBounds, DppoDropsNoTokenForANan) {
  for (const Kind kind : {Kind::dppo_tv, Kind::dppo_kl}) {
    for (Tensor PolicyCase::*input : {&PolicyCase::logp, &PolicyCase::old_logp, &PolicyCase::advantages}) {
      PolicyCase c = one_token(-1, -1.5, 1);
      c.params.kind = kind;
      (c.*input).set(0, kNan);
      EXPECT_TRUE(std::isnan(run_policy_loss(c).loss));
      EXPECT_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_CLIP_FRACTION), 0);
    }
  }
}

// A token of this log ratio to the sampler.
PolicyCase sampled(double r) {
  const double logp = r < 0 ? -1 + r : -1;
  PolicyCase c = one_token(logp, logp, 1);
  c.rollout_logp = numbers({r < 0 ? -1 : -1 - r}, {1, 1});
  return c;
}

TEST(PolicyBounds, MasksOfTheSamplersRatioKeepWhatIsABound) {
  for (const RolloutIs mode : {RolloutIs::token_mask, RolloutIs::sequence_mask, RolloutIs::geometric_mask}) {
    PolicyCase c = sampled(0);
    c.params.rollout_is = mode;
    c.params.rollout_is_min = c.params.rollout_is_max = 1;
    EXPECT_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_ROLLOUT_WEIGHT), 1);
  }
}

// k2 of -1 is 1/2 and k3 of -800 is 799 to the bit.
TEST(PolicyBounds, RejectionsKeepWhatIsABoundAndABoundMayBeBelowOne) {
  struct Rejection {
    double Params::*bound;
    double r, at, beyond;
  };
  for (const Rejection& rejection : {Rejection{&Params::reject_token_k1_low, 0, 1, 1 + 1e-9},
                                     {&Params::reject_token_k1_high, 0, 1, 1 - 1e-9},
                                     {&Params::reject_token_k2_high, -1, 0.5, 0.5 - 1e-9},
                                     {&Params::reject_token_k3_high, -800, 799, 799 - 1e-9}}) {
    SCOPED_TRACE(rejection.r);
    PolicyCase c = sampled(rejection.r);
    c.params.*rejection.bound = rejection.at;
    EXPECT_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_ACTIVE_TOKENS), 1);
    c.params.*rejection.bound = rejection.beyond;
    EXPECT_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_ACTIVE_TOKENS), 0);
    EXPECT_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_REJECTED), 1);
  }
}

TEST(PolicyBounds, AGivenMeanOfTheWeightsDividesThemUnlessItIsTiny) {
  for (const auto& [mean, weight] : {std::pair<double, double>{2, 0.5}, {1e-8, 1}, {2e-8, 5e7}}) {
    PolicyCase c = sampled(0);
    c.params.rollout_is_normalize = RolloutIsNormalize::on;
    c.params.rollout_is_mean = mean;
    EXPECT_DOUBLE_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_ROLLOUT_WEIGHT), weight);
  }
}

TEST(PolicyBounds, TheBinaryKlOfACertainTokenIsFinite) {
  for (const auto& [trained, by_sampler] : {std::pair<double, double>{-1, 0}, {0, -1}}) {
    PolicyCase c = one_token(trained, trained, 1);
    c.rollout_logp = numbers({by_sampler}, {1, 1});
    c.params.rollout_is = RolloutIs::token_mask;
    c.params.rollout_gate = RolloutGate::binary_kl;
    c.params.rollout_is_max = 9;  // it is 8.07 at most
    EXPECT_DOUBLE_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_ROLLOUT_WEIGHT), std::exp(trained - by_sampler));
  }
}

TEST(PolicyBounds, WhereTheSamplerHadNoNumberEveryGateIsPassed) {
  for (const RolloutIs mode : {RolloutIs::token_mask, RolloutIs::geometric_mask}) {
    for (const RolloutGate gate : {RolloutGate::ratio, RolloutGate::binary_kl, RolloutGate::tv}) {
      PolicyCase c = sampled(kNan);
      c.params.rollout_is = mode;
      c.params.rollout_gate = gate;
      c.params.rollout_missing = RolloutMissing::one;
      EXPECT_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_ROLLOUT_WEIGHT), 1);
    }
  }
}

// Two tokens with log ratios x to the old policy and r to the sampler: u is the sum of x and log w, each clamped.
TEST(PolicyBounds, VespoClampsEachTermOfItsSum) {
  struct Tokens {
    std::vector<double> x, r;
    RolloutIs mode;
    double largest, u;
  };
  const double least = std::log(1e-8);
  for (const Tokens& tokens : {Tokens{{25, -19}, {0, 0}, RolloutIs::token_truncate, 3, 20 - 19},
                               {{19, 0}, {5, 0}, RolloutIs::token_mask, 3, 19 + least},  // a weight of 0
                               {{-19.5, 0}, {30, 0}, RolloutIs::token_truncate, kInfinity, -19.5 + 20},
                               {{-19.5, 0}, {kInfinity, 0}, RolloutIs::token_truncate, kInfinity, -19.5 + 20},
                               {{0, 0}, {kNan, 0}, RolloutIs::token_truncate, 3, kNan}}) {
    SCOPED_TRACE(tokens.u);
    PolicyCase c;
    c.params.kind = Kind::vespo;
    c.params.rollout_is = tokens.mode;
    c.params.rollout_is_max = tokens.largest;
    c.advantages = numbers({1, 1}, {1, 2});
    c.old_logp = numbers({-30, -30}, {1, 2});
    c.logp = c.rollout_logp = c.old_logp;
    for (int64_t t = 0; t < 2; ++t) {
      c.logp.set(t, -30 + tokens.x[static_cast<size_t>(t)]);
      c.rollout_logp.set(t, -30 - tokens.r[static_cast<size_t>(t)]);
    }
    const double phi = std::isnan(tokens.u) ? 0 : std::exp(3 + 2 * tokens.u - 3 * std::exp(tokens.u));
    EXPECT_NEAR(metric_of(c, RLK_POLICY_LOSS_METRICS_PHI), phi, 1e-13 * phi);
  }
}

TEST(PolicyBounds, TheGeometricWeightOfGmpoIsInfiniteOrNanWhereAWeightIs) {
  for (const double r : {kInfinity, kNan}) {
    PolicyCase c = sampled(r);
    c.params.kind = Kind::gmpo;
    c.params.rollout_is_max = kInfinity;
    for (const double loss : {run_policy_loss(c).loss, golden_answer(c).loss.value[0]}) {
      EXPECT_TRUE(std::isnan(r) ? std::isnan(loss) : loss == -kInfinity) << loss;
    }
  }
}

TEST(PolicyBounds, TheOwnMeanOfEntropiesTakesACoefficientOfOneAndADenominatorBelowIt) {
  PolicyCase c = one_token(-1, -1, 1);
  c.entropy = numbers({0.75}, {1, 1});
  c.params.entropy_coefficient = 1;
  c.params.entropy_aggregation = EntropyAggregation::token_mean;
  c.params.entropy_denominator = 0.5;
  EXPECT_DOUBLE_EQ(run_policy_loss(c).loss, -1 - 0.75 / 0.5);
  EXPECT_DOUBLE_EQ(golden_answer(c).loss.value[0], -1 - 0.75 / 0.5);
  EXPECT_DOUBLE_EQ(run_policy_loss_backward(c).grad_entropy.get(0), -1 / 0.5);
}

TEST(PolicyBounds, AQuantileKeepsTheOnlyTokenAndOneOfNearlyOneKeepsAll) {
  for (const auto& [tokens, share] : {std::pair<int64_t, double>{1, 0.5}, {3, 1 - 1e-9}}) {
    PolicyCase c = make_policy_case(Dtype::f64, 1, tokens, 61);
    c.params.top_entropy_quantile = share;
    EXPECT_EQ(metric_of(c, RLK_POLICY_LOSS_METRICS_SELECTED), 1);
  }
}

// 4101 tokens are three chunks.
TEST(PolicyBounds, TheLargestDivergenceOfALongSequenceMayStandInAnyChunk) {
  for (const int64_t at : {10, 2500, 4100}) {
    for (const double r : {3.0, kNan}) {
      PolicyCase c = make_policy_case(Dtype::f64, 2, 4101, 62);
      c.rollout_logp.fill([&](int64_t i) { return c.old_logp.get(i) - (i == at ? r : 0); });
      c.params.reject_sequence_max_k2_high = 1;
      EXPECT_EQ(run_policy_loss(c).metrics[RLK_POLICY_LOSS_METRICS_ACTIVE_TOKENS], 4101) << at << " " << r;
    }
  }
}

}  // namespace
}  // namespace rlk::test
