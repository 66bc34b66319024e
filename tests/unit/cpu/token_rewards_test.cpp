// token_rewards against verl's and OpenRLHF's own formulas, and its promises: masks, layouts, data errors, bits.
#include <rlk/sdk/ops/token_rewards.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::token_rewards;  // NOLINT(google-build-using-namespace): its enumerations
using TokenRewards = CallOf<ops::TokenRewards>;

TokenRewards make_case(Dtype dtype = Dtype::f64) {
  TokenRewards c;
  c.logp = random_tensor(dtype, {3, 5}, 0.8, 1);
  c.ref_logp = random_tensor(dtype, {3, 5}, 0.8, 2);
  c.mask = flags({1, 1, 0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0}, {3, 5});
  c.kl = c.sequence_kl = wanted();
  return c;
}

// What both golden and kernel must give.
void expect_rewards(const TokenRewards& c, const std::vector<double>& want) {
  const auto got = run(c);
  const auto golden = golden_answer(c);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got.rewards.get(static_cast<int64_t>(i)), want[i], 1e-13) << i;
    EXPECT_NEAR(golden.rewards.value[i], want[i], 1e-13) << i;
    EXPECT_NEAR(golden.kl.value[i], got.kl.get(static_cast<int64_t>(i)), 1e-13) << i;
  }
  for (size_t b = 0; b < golden.sequence_kl.value.size(); ++b) {
    EXPECT_NEAR(golden.sequence_kl.value[b], got.sequence_kl.get(static_cast<int64_t>(b)), 1e-13) << b;
  }
}

// token_level_scores - beta * kl_penalty(old_log_probs, ref_log_prob) * response_mask.
TEST(CpuTokenRewards, IsVerlsPenaltyWithEveryEstimator) {
  struct Penalty {
    KlKind kind;
    double diff_clamp, value_clamp;
    double (*value)(double logp, double ref);
  };
  const Penalty penalties[] = {
      {KlKind::k1, 0, 0, [](double logp, double ref) { return logp - ref; }},
      {KlKind::abs, 0, 0, [](double logp, double ref) { return std::fabs(logp - ref); }},
      {KlKind::k2, 0, 0, [](double logp, double ref) { return 0.5 * (logp - ref) * (logp - ref); }},
      {KlKind::k3, 20, 10, [](double logp, double ref) {  // low_var_kl
         const double kl = std::min(std::max(ref - logp, -20.0), 20.0);
         return std::min(std::max(std::exp(kl) - kl - 1, -10.0), 10.0);
       }}};
  for (const Penalty& penalty : penalties) {
    TokenRewards c = make_case();
    c.scores = Tensor(Dtype::f64, {3, 5}).fill([](int64_t i) { return i == 3 ? 1.5 : i == 9 ? -0.5 : 0.0; });
    c.ref_logp.set(6, c.logp.get(6) + 3);   // k3 of 16
    c.ref_logp.set(7, c.logp.get(7) + 25);  // beyond both clamps
    c.params.kl_kind = penalty.kind;
    c.params.diff_clamp = penalty.diff_clamp;
    c.params.value_clamp = penalty.value_clamp;
    c.params.coefficient = 0.2;
    std::vector<double> want;
    std::vector<double> means;
    for (int64_t b = 0; b < 3; ++b) {
      double sum = 0, n = 0;
      for (int64_t i = b * 5; i < b * 5 + 5; ++i) {
        const bool kept = c.mask.get_int(i) != 0;
        const double kl = kept ? penalty.value(c.logp.get(i), c.ref_logp.get(i)) : 0.0;
        want.push_back(kept ? c.scores.get(i) - 0.2 * kl : 0.0);
        sum += kl;
        n += kept ? 1 : 0;
      }
      means.push_back(n > 0 ? sum / n : 0.0);
    }
    expect_rewards(c, want);
    const Tensor sequence_kl = run(c).sequence_kl;
    for (int64_t b = 0; b < 3; ++b) EXPECT_NEAR(sequence_kl.get(b), means[static_cast<size_t>(b)], 1e-13);
  }
}

// compute_reward: the clamped reward at the last action, less kl_coef * compute_approx_kl everywhere.
TEST(CpuTokenRewards, IsOpenRlhfsRewardAtTheLastAction) {
  for (const bool clips : {false, true}) {
    TokenRewards c = make_case();
    c.sequence_rewards = numbers({14.0, -0.75, 3.0});
    c.params.reward_clip = clips ? RewardClip::on : RewardClip::off;
    c.params.coefficient = 0.05;
    c.params.value_clamp = 10;
    c.ref_logp.set(1, c.logp.get(1) - 12);
    std::vector<double> want(15);
    const size_t last[] = {3, 9};
    for (size_t i = 0; i < 15; ++i) {
      const auto at = static_cast<int64_t>(i);
      if (c.mask.get_int(at) == 0) continue;
      want[i] = -0.05 * std::min(std::max(c.logp.get(at) - c.ref_logp.get(at), -10.0), 10.0);
    }
    want[last[0]] += clips ? 10.0 : 14.0;
    want[last[1]] += -0.75;  // the third sequence has no action
    expect_rewards(c, want);
  }
}

}  // namespace
}  // namespace rlk::test
