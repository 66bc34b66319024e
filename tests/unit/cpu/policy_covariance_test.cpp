// clip_cov and kl_cov as verl publishes them: which tokens are taken, and what becomes of them. verl draws the tokens
// of clip_cov with torch's numbers; here any draw of as many candidates is right, and the seeds must spread over them.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

using Place = std::pair<size_t, size_t>;

// The names and defaults of verl's configuration, but for shares and clips of which a small batch sees something.
struct Verl {
  double clip_low = 0.6, clip_high = 0.8;
  double clip_cov_ratio = 0.3, clip_cov_lb = 1.0, clip_cov_ub = 5.0;
  double kl_cov_ratio = 0.3, ppo_kl_coef = 0.1;
};

// (A - mean A) (logp - mean logp), no gradient.
Matrix covariances(const TrainerBatch& d) {
  const double n = tokens_of(d.mask), mean_a = sum_of(d.advantage, d.mask) / n, mean_lp = sum_of(d.sg, d.mask) / n;
  return each(d, [&](size_t b, size_t t) { return (d.advantage[b][t] - mean_a) * (d.sg[b][t] - mean_lp); });
}

double unclipped(const TrainerBatch& d, size_t b, size_t t) {
  return -d.advantage[b][t] * std::exp(d.lp[b][t] - d.old[b][t]);
}
double clipped(const TrainerBatch& d, const Verl& o, size_t b, size_t t) {
  return -d.advantage[b][t] * clip(std::exp(d.lp[b][t] - d.old[b][t]), 1 - o.clip_low, 1 + o.clip_high);
}

std::set<Place> clip_cov_candidates(const TrainerBatch& d, const Verl& o) {
  const Matrix cov = covariances(d);
  std::set<Place> places;
  for (size_t b = 0; b < d.sequences(); ++b) {
    for (size_t t = 0; t < d.tokens(); ++t) {
      if (d.mask[b][t] == 0 || clipped(d, o, b, t) > unclipped(d, b, t)) continue;
      if (cov[b][t] > o.clip_cov_lb && cov[b][t] < o.clip_cov_ub) places.insert({b, t});
    }
  }
  return places;
}
size_t taken(const TrainerBatch& d, double ratio) {
  return static_cast<size_t>(std::max(std::floor(ratio * tokens_of(d.mask)), 1.0));
}

double clip_cov_loss(const TrainerBatch& d, const Verl& o, const std::set<Place>& dropped, const Matrix& weight) {
  const Matrix loss = each(d, [&](size_t b, size_t t) {
    return dropped.count({b, t}) > 0 ? 0.0 : std::max(unclipped(d, b, t), clipped(d, o, b, t)) * weight[b][t];
  });
  return sum_of(loss, d.mask) / tokens_of(d.mask);
}

std::set<Place> kl_cov_tokens(const TrainerBatch& d, const Verl& o) {
  const Matrix cov = covariances(d);
  std::multimap<double, Place, std::greater<>> order;
  for (size_t b = 0; b < d.sequences(); ++b) {
    for (size_t t = 0; t < d.tokens(); ++t) {
      if (d.mask[b][t] != 0) order.insert({cov[b][t], {b, t}});
    }
  }
  std::set<Place> places;
  for (auto it = order.begin(); it != order.end() && places.size() < taken(d, o.kl_cov_ratio); ++it) {
    places.insert(it->second);
  }
  return places;
}

double kl_cov_loss(const TrainerBatch& d, const Verl& o, const Matrix& weight) {
  const std::set<Place> held_back = kl_cov_tokens(d, o);
  const Matrix loss = each(d, [&](size_t b, size_t t) {
    const double kl = std::fabs(d.lp[b][t] - d.old[b][t]);
    return (unclipped(d, b, t) + (held_back.count({b, t}) > 0 ? o.ppo_kl_coef * kl : 0.0)) * weight[b][t];
  });
  return sum_of(loss, d.mask) / tokens_of(d.mask);
}

// Truncated weights of tokens against the sampler, verl's rollout_is.
Matrix weights(const TrainerBatch& d, bool sampler) {
  return each(d, [&](size_t b, size_t t) {
    return sampler ? std::min(std::exp(clip(d.old[b][t] - d.sampled[b][t], -20, 20)), 2.0) : 1.0;
  });
}

PolicyCase verl_case(Kind kind, const Verl& o, uint32_t seed, bool sampler = false) {
  PolicyCase c = make_policy_case(Dtype::f64, 5, 8, seed);
  mask_some(c);
  if (!sampler) c.rollout_logp = {};
  c.params.kind = kind;
  c.params.clip_low = o.clip_low;
  c.params.clip_high = o.clip_high;
  c.params.cov_share = kind == Kind::clip_cov ? o.clip_cov_ratio : o.kl_cov_ratio;
  c.params.cov_low = o.clip_cov_lb;
  c.params.cov_high = o.clip_cov_ub;
  c.params.cov_coefficient = o.ppo_kl_coef;
  c.params.rollout_is_max = 2;
  c.params.rollout_log_clamp = 20;
  return c;
}

// The active tokens whose loss the kernel gives as 0.
std::set<Place> dropped_of(const PolicyCase& c) {
  const TrainerBatch d = trainer_batch(c);
  const Tensor per_token = run_policy_loss(c, backwards_parallel()).per_token;
  std::set<Place> places;
  for (size_t b = 0; b < d.sequences(); ++b) {
    for (size_t t = 0; t < d.tokens(); ++t) {
      const bool zero = per_token.get(static_cast<int64_t>(b * d.tokens() + t)) == 0;
      if (d.mask[b][t] != 0 && zero) places.insert({b, t});
    }
  }
  return places;
}

TEST(PolicyCovariance, ClipCovDropsAsManyCandidatesAsVerlWithItsLossAndGradient) {
  for (const bool sampler : {false, true}) {
    for (const double ratio : {2e-4, 0.1, 0.3, 1.0}) {  // 2e-4 is verl's: one token
      SCOPED_TRACE(ratio);
      Verl o;
      o.clip_cov_ratio = ratio;
      o.clip_cov_lb = -0.1;
      PolicyCase c = verl_case(Kind::clip_cov, o, 171, sampler);
      const TrainerBatch d = trainer_batch(c);
      const std::set<Place> candidates = clip_cov_candidates(d, o), dropped = dropped_of(c);
      ASSERT_GT(candidates.size(), 3u);
      ASSERT_LT(candidates.size(), static_cast<size_t>(tokens_of(d.mask)));
      EXPECT_EQ(dropped.size(), std::min(candidates.size(), taken(d, ratio)));
      EXPECT_TRUE(std::includes(candidates.begin(), candidates.end(), dropped.begin(), dropped.end()));
      expect_trainer(c, [&](const TrainerBatch& e) { return clip_cov_loss(e, o, dropped, weights(e, sampler)); });
      EXPECT_NEAR(run_policy_loss(c).metrics[RLK_POLICY_LOSS_METRICS_CLIP_FRACTION],
                  static_cast<double>(dropped.size()) / tokens_of(d.mask), 1e-15);
    }
  }
}

TEST(PolicyCovariance, ClipCovIsPpoWhereNoCovarianceIsBetweenTheBounds) {
  Verl o;
  o.clip_cov_lb = 50;
  o.clip_cov_ub = 60;
  const PolicyCase c = verl_case(Kind::clip_cov, o, 172);
  expect_trainer(c, [&](const TrainerBatch& e) { return clip_cov_loss(e, o, {}, weights(e, false)); });
}

// Advantages of 1 and -1 and log-probabilities of -1 and -2: every covariance is 1/4 or -1/4 to the bit.
TEST(PolicyCovariance, TheBoundsOfClipCovAreOutside) {
  PolicyCase c = verl_case(Kind::clip_cov, {}, 173);
  c.mask = {};
  for (int64_t i = 0; i < c.logp.size(); ++i) {
    c.advantages.set(i, i % 2 == 0 ? 1 : -1);
    c.logp.set(i, i % 4 < 2 ? -1 : -2);
    c.old_logp.set(i, c.logp.get(i));
  }
  c.params.cov_share = 1;
  const auto drops = [&](double low, double high) {
    c.params.cov_low = low;
    c.params.cov_high = high;
    return dropped_of(c).size();
  };
  EXPECT_EQ(drops(-1, 1), 40u);
  EXPECT_EQ(drops(0.5, 1), 0u);
  EXPECT_EQ(drops(-1, -0.5), 0u);
  EXPECT_EQ(drops(-0.5, 0.5), 0u);
  EXPECT_EQ(drops(-0.51, 0.5), 20u);
  EXPECT_EQ(drops(-kInfinity, kInfinity), 40u);
}

// 5 of the candidates by each of 2,000 seeds: the share of each candidate is within 5 standard deviations.
TEST(PolicyCovariance, EverySeedDrawsAnewAndEveryCandidateIsAsLikely) {
  Verl o;
  o.clip_cov_ratio = 0.2;
  o.clip_cov_lb = -0.5;
  PolicyCase c = verl_case(Kind::clip_cov, o, 174);
  const TrainerBatch d = trainer_batch(c);
  const auto candidates = static_cast<double>(clip_cov_candidates(d, o).size());
  const auto of_each = static_cast<double>(taken(d, o.clip_cov_ratio));
  ASSERT_GT(candidates, of_each + 2);
  std::map<Place, double> times;
  const double seeds = 2000;
  for (int64_t seed = 0; seed < 2000; ++seed) {
    c.params.cov_seed = seed * 0x100000001;
    for (const Place& place : dropped_of(c)) times[place] += 1;
  }
  EXPECT_EQ(static_cast<double>(times.size()), candidates);
  const double share = of_each / candidates;
  for (const auto& [place, count] : times) {
    EXPECT_NEAR(count, seeds * share, 5 * std::sqrt(seeds * share * (1 - share))) << place.first << " " << place.second;
  }
}

TEST(PolicyCovariance, KlCovAddsToTheTokensOfLargestCovarianceAsVerlAndWeighsWhatItAdds) {
  for (const bool sampler : {false, true}) {
    for (const double ratio : {2e-4, 0.3, 1.0}) {
      for (const double coefficient : {0.1, 1.0}) {  // the actor's own, and what the loss takes where there is none
        Verl o;
        o.kl_cov_ratio = ratio;
        o.ppo_kl_coef = coefficient;
        PolicyCase c = verl_case(Kind::kl_cov, o, 175, sampler);
        expect_trainer(c, [&](const TrainerBatch& e) { return kl_cov_loss(e, o, weights(e, sampler)); });
        const TrainerBatch d = trainer_batch(c);
        EXPECT_NEAR(run_policy_loss(c).metrics[RLK_POLICY_LOSS_METRICS_CLIP_FRACTION],
                    static_cast<double>(taken(d, ratio)) / tokens_of(d.mask), 1e-15);
      }
    }
  }
}

// A rejected token is out of verl's mask before anything is counted.
TEST(PolicyCovariance, RejectedTokensAreInNoMeanAndNoCount) {
  Verl o;
  PolicyCase c = verl_case(Kind::kl_cov, o, 176, true);
  c.params.reject_token_k1_high = 1.2;
  expect_trainer(c, [&](TrainerBatch e) {
    for (size_t b = 0; b < e.sequences(); ++b) {
      for (size_t t = 0; t < e.tokens(); ++t) {
        if (e.mask[b][t] != 0 && std::exp(e.sampled[b][t] - e.old[b][t]) > 1.2) e.mask[b][t] = 0;
      }
    }
    return kl_cov_loss(e, o, weights(e, true));
  });
}

// Of two tokens the covariances are one number: the first is taken. torch leaves open which.
TEST(PolicyCovariance, EqualCovariancesAreTakenByRisingPlace) {
  PolicyCase c = make_policy_case(Dtype::f64, 1, 2, 177);
  c.params.kind = Kind::kl_cov;
  c.params.cov_coefficient = 1;
  c.logp.set(0, -1).set(1, -2);
  c.old_logp.set(0, -1.5).set(1, -2.5);
  c.advantages.set(0, 0.25).set(1, -0.75);
  c.rollout_logp = {};
  const auto term = [&](int64_t t) { return -c.advantages.get(t) * std::exp(0.5); };
  const PolicyOutputs got = run_policy_loss(c);
  EXPECT_DOUBLE_EQ(got.per_token.get(0), term(0) + 0.5);
  EXPECT_DOUBLE_EQ(got.per_token.get(1), term(1));
}

// Equal advantages: 0 times a log-probability below the mean is -0, and no smaller than 0.
TEST(PolicyCovariance, ZerosOfBothSignsAreOneCovariance) {
  PolicyCase c;
  c.params.kind = Kind::kl_cov;
  c.params.cov_coefficient = 1;
  c.logp = numbers({-2, -1}, {1, 2});
  c.old_logp = numbers({-2.5, -1.5}, {1, 2});
  c.advantages = numbers({1, 1}, {1, 2});
  const PolicyOutputs got = run_policy_loss(c);
  EXPECT_DOUBLE_EQ(got.per_token.get(0), -std::exp(0.5) + 0.5);
  EXPECT_DOUBLE_EQ(got.per_token.get(1), -std::exp(0.5));
  EXPECT_DOUBLE_EQ(golden_answer(c).per_token.value[0], got.per_token.get(0));
}

TEST(PolicyCovariance, NaNsTakeNoTokenAndAreNeverDropped) {
  for (const Kind kind : {Kind::clip_cov, Kind::kl_cov}) {
    Verl o;
    o.clip_cov_lb = -kInfinity;
    o.clip_cov_ub = kInfinity;
    PolicyCase c = verl_case(kind, o, 178);
    c.params.cov_share = 1;
    const double fraction = run_policy_loss(c).metrics[RLK_POLICY_LOSS_METRICS_CLIP_FRACTION];
    EXPECT_GT(fraction, 0.5);
    PolicyCase of_old = c;
    of_old.old_logp.set(0, kNan);
    const PolicyOutputs old = run_policy_loss(of_old);
    EXPECT_TRUE(std::isnan(old.per_token.get(0)));
    EXPECT_GT(old.metrics[RLK_POLICY_LOSS_METRICS_CLIP_FRACTION], 0.4);
    for (Tensor PolicyCase::*input : {&PolicyCase::logp, &PolicyCase::advantages}) {
      PolicyCase bad = c;
      (bad.*input).set(0, kNan);
      const PolicyOutputs got = run_policy_loss(bad);
      EXPECT_TRUE(std::isnan(got.per_token.get(0)));
      EXPECT_FALSE(std::isnan(got.per_token.get(1)));
      EXPECT_EQ(got.metrics[RLK_POLICY_LOSS_METRICS_CLIP_FRACTION], 0);
    }
  }
}

}  // namespace
}  // namespace rlk::test
