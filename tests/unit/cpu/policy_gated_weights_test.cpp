// Importance weights against the sampler that hang on the mean of a sequence: gated by it and clamped (OpenRLHF), or
// the mean's own ratio, truncated or masked (TRL). What a weight of 0 takes out stays in the denominator.
#include <cmath>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {
using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

constexpr int64_t kTokens = 6;
constexpr double kLow = 0.7, kHigh = 1.6;

PolicyCase make_case() {
  PolicyCase c = make_policy_case(Dtype::f64, 4, kTokens, 91);
  for (int64_t t = 0; t < kTokens; ++t) c.rollout_logp.set(kTokens + t, c.rollout_logp.get(kTokens + t) - 1.9);
  c.mask = Tensor(Dtype::u8, {4, kTokens});
  for (int64_t i = 0; i < c.mask.size(); ++i) c.mask.set_int(i, i % kTokens < 3 + i / kTokens ? 1 : 0);
  c.ref_logp = c.entropy = c.weight = Tensor();
  c.params.rollout_is_min = kLow;
  c.params.rollout_is_max = kHigh;
  return c;
}

// weight(r of the token, mean r of its sequence)
template <class Weight>
void expect_weights(const PolicyCase& c, const Weight& weight) {
  PolicyCase plain = c;
  plain.params.rollout_is = RolloutIs::none;
  const PolicyOutputs without = run_policy_loss(plain), got = run_policy_loss(c);
  const auto right = golden_answer(static_cast<const CallOf<ops::PolicyLoss>&>(c));
  double loss = 0, active = 0;
  int dropped = 0;
  for (int64_t b = 0; b < 4; ++b) {
    double sum = 0, n = 0;
    const auto r = [&](int64_t t) { return c.old_logp.get(b * kTokens + t) - c.rollout_logp.get(b * kTokens + t); };
    for (int64_t t = 0; t < kTokens; ++t) {
      if (c.mask.get_int(b * kTokens + t) == 0) continue;
      sum += r(t);
      n += 1;
    }
    for (int64_t t = 0; t < kTokens; ++t) {
      const int64_t i = b * kTokens + t;
      if (c.mask.get_int(i) == 0) continue;
      const double w = weight(r(t), sum / n);
      dropped += w == 0 ? 1 : 0;
      EXPECT_NEAR(got.per_token.get(i), w * without.per_token.get(i), 1e-13) << i;
      EXPECT_NEAR(right.per_token.value[static_cast<size_t>(i)], w * without.per_token.get(i), 1e-13) << i;
      loss += w * without.per_token.get(i);
      active += 1;
    }
  }
  EXPECT_NEAR(got.loss, loss / active, 1e-13);
  EXPECT_EQ(dropped > 0, c.params.rollout_is != RolloutIs::sequence_truncate);
}

TEST(PolicyGatedWeights, AGateByTheMeanKeepsClampedWeights) {
  PolicyCase c = make_case();
  c.params.rollout_is = RolloutIs::geometric_mask;
  c.params.rollout_gated = RolloutGated::truncated;
  expect_weights(c, [](double r, double mean) {
    return std::exp(mean) >= kLow && std::exp(mean) <= kHigh ? clip(std::exp(r), kLow, kHigh) : 0.0;
  });
}

TEST(PolicyGatedWeights, TheRatioOfTheMeanIsTruncatedOrMasked) {
  PolicyCase c = make_case();
  c.params.rollout_sequence = RolloutSequence::mean;
  c.params.rollout_is = RolloutIs::sequence_truncate;
  expect_weights(c, [](double, double mean) { return clip(std::exp(mean), kLow, kHigh); });
  c.params.rollout_is = RolloutIs::sequence_mask;
  expect_weights(
      c, [](double, double mean) { return std::exp(mean) >= kLow && std::exp(mean) <= kHigh ? std::exp(mean) : 0.0; });
}

}  // namespace
}  // namespace rlk::test
