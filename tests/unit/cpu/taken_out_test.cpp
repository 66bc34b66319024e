// A token that a rule takes out (a mask, a weight, a gate, a factor of 0) leaves nothing in results and gradients: its
// numbers may overflow, be infinite or NaN, and every bit is that of the same call with harmless numbers there.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/cross_entropy.hpp>
#include <rlk/sdk/ops/cross_entropy_backward.hpp>
#include <rlk/sdk/ops/linear_cross_entropy.hpp>
#include <rlk/sdk/ops/preference_loss.hpp>
#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>
#include <rlk/sdk/ops/token_rewards.hpp>

#include <cmath>
#include <functional>
#include <limits>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {
using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Kind kKinds[] = {Kind::ppo, Kind::cispo, Kind::sapo,    Kind::vespo,   Kind::gmpo,
                           Kind::gpg, Kind::dro,   Kind::dppo_tv, Kind::dppo_kl, Kind::kl_cov};

// The bits, where every NaN is one.
void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  for (int64_t i = 0; i < want.size(); ++i) {
    const double a = got.get(i), b = want.get(i);
    EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << what << " [" << i << "]: " << a << ", clean " << b;
  }
}
void expect_finite(const Tensor& got, const std::string& what) {
  for (int64_t i = 0; i < got.size(); ++i) EXPECT_TRUE(std::isfinite(got.get(i))) << what << " [" << i << "]";
}

// Loss, losses of tokens and gradient of the kernel and of golden.
struct All {
  explicit All(const PolicyCase& c)
      : forward(run_policy_loss(c)),
        gradient(run_policy_loss_backward(c).grad_logp),
        golden(golden_answer(static_cast<const CallOf<ops::PolicyLoss>&>(c))),
        golden_gradient(golden_answer(backward_call(c))) {}
  PolicyOutputs forward;
  Tensor gradient;
  GoldenResult<ops::PolicyLoss> golden;
  GoldenResult<ops::PolicyLossBackward> golden_gradient;
};
void expect_same(const All& got, const All& clean, const std::string& what) {
  EXPECT_TRUE(std::isfinite(clean.forward.loss)) << what;
  EXPECT_EQ(got.forward.loss, clean.forward.loss) << what;
  expect_same(got.forward.per_token, clean.forward.per_token, what + ": per_token");
  expect_same(got.gradient, clean.gradient, what + ": grad_logp");
  expect_finite(got.gradient, what + ": grad_logp");
  EXPECT_EQ(got.golden.loss.value, clean.golden.loss.value) << what << " (golden)";
  EXPECT_EQ(got.golden.per_token.value, clean.golden.per_token.value) << what << " (golden)";
  EXPECT_EQ(got.golden_gradient.grad_logp.value, clean.golden_gradient.grad_logp.value) << what << " (golden)";
}

template <class Choice>
std::string name_of(const std::string& param, Choice choice) {
  return param + " " + std::to_string(static_cast<int>(choice));
}

constexpr int64_t kAt = 7;  // the token that is taken out, of 2 sequences of 5

// Log ratios of 1e4 and -1e4, infinite ones and NaN.
struct Poison {
  double logp, old_logp;
};
constexpr Poison kPoison[] = {{1e4, 0}, {0, 1e4}, {-1e4, 0}, {-kInfinity, -1}, {-1, -kInfinity}, {kNan, kNan}};

void for_each_poison(const PolicyCase& plain, bool nan, const std::string& what) {
  const All clean(plain);
  for (const Poison& poison : kPoison) {
    if (!nan && std::isnan(poison.logp)) continue;
    PolicyCase c = plain;
    c.logp.set(kAt, poison.logp);
    c.old_logp.set(kAt, poison.old_logp);
    const std::string with = what + " with " + std::to_string(poison.logp) + " and " + std::to_string(poison.old_logp);
    expect_same(All(c), clean, with);
  }
}

PolicyCase plain_case(Kind kind) {
  PolicyCase c = make_policy_case(Dtype::f32, 2, 5, 3);
  c.ref_logp = c.rollout_logp = c.entropy = c.weight = Tensor();
  c.params = {};
  c.params.kind = kind;
  c.params.cov_share = 0.2;
  return c;
}

TEST(TakenOut, ATokenOfWeight0HasNoPolicyLossWhateverItsNumbersAre) {
  for_each_target([] {
    for (const Kind kind : kKinds) {
      // The mean of the sequence, and the choice by covariance, are of all active tokens.
      if (kind == Kind::gmpo || kind == Kind::vespo || kind == Kind::kl_cov) continue;
      PolicyCase c = plain_case(kind);
      c.weight = random_tensor(Dtype::f32, {2, 5}, 0.5, 9);
      c.weight.set(kAt, 0);
      for_each_poison(c, true, name_of("kind", kind));
    }
  });
}

TEST(TakenOut, AMaskedTokenHasNoPolicyLossWhateverItsNumbersAre) {
  for (const Kind kind : kKinds) {
    PolicyCase c = plain_case(kind);
    c.mask = flags({1, 1, 1, 1, 1, 1, 1, 0, 1, 1}, {2, 5});
    for_each_poison(c, true, name_of("kind", kind));
  }
}

TEST(TakenOut, AnAdvantageOf0LeavesNothingOfAnInfiniteRatio) {
  for_each_target([] {
    for (const Kind kind : {Kind::ppo, Kind::cispo, Kind::sapo, Kind::gpg, Kind::dppo_tv, Kind::dppo_kl}) {
      for (const double bound : {0.2, kInfinity}) {
        PolicyCase c = plain_case(kind);
        c.params.clip_high = bound;
        c.advantages.set(kAt, 0);
        for_each_poison(c, false, name_of("kind", kind) + " clip " + std::to_string(bound));
      }
    }
  });
}

TEST(TakenOut, AWeightOfTheSamplerThatIs0LeavesNothing) {
  for (const RolloutIs how : {RolloutIs::token_mask, RolloutIs::token_truncate}) {
    PolicyCase c = plain_case(Kind::ppo);
    c.rollout_logp = c.old_logp;
    c.params.rollout_is = how;
    c.params.rollout_is_min = 0;
    c.params.rollout_is_max = 2;
    c.rollout_logp.set(kAt, 1e4);  // exp(-1e4) is 0; masked beside it
    PolicyCase clean = c;
    c.logp.set(kAt, 1e4);
    expect_same(All(c), All(clean), name_of("rollout_is", how));
  }
}

TEST(TakenOut, AGradientOf0PassesNothingOfAnInfiniteSlope) {
  PolicyCase c = plain_case(Kind::ppo);
  c.params.aggregation = Aggregation::none;
  c.params.clip_high = kInfinity;
  c.grad_per_token = random_tensor(Dtype::f32, {2, 5}, 1, 4);
  c.grad_per_token.set(kAt, 0);
  const Tensor clean = run_policy_loss_backward(c).grad_logp;
  c.logp.set(kAt, 1e4);
  c.advantages.set(kAt, 2);
  expect_same(run_policy_loss_backward(c).grad_logp, clean, "grad_per_token 0");
  EXPECT_EQ(golden_answer(backward_call(c)).grad_logp.value[kAt], 0.0);
}

TEST(TakenOut, AKlWeightOf0LeavesNothingOfAnInfiniteEstimateAndAGradientOf0PassesNothing) {
  for_each_target([] {
    CallOf<ops::RatioKl> call;
    call.logp = numbers({-2e4, -1, 0, 2e4}, {4}, Dtype::f64);
    call.old_logp = numbers({0, -1, 0, 0}, {4}, Dtype::f64);    // ratios 0, 1, 1, inf
    call.ref_logp = numbers({0, -1, 0, 2e4}, {4}, Dtype::f64);  // k3 inf, 0, 0, 0
    call.kl = wanted();
    call.params.kl_weight = ops::ratio_kl::KlWeight::ratio;
    const auto got = run(call);
    const auto right = golden_answer(call);
    for (int64_t n = 0; n < 4; ++n) {
      EXPECT_EQ(got.kl.get(n), 0.0) << n;
      EXPECT_EQ(right.kl.value[static_cast<size_t>(n)], 0.0) << n;
    }
    auto backward = sdk::backward_of<CallOf<ops::RatioKlBackward>>(call);
    backward.grad_ratio = numbers({0, 1, 1, 0}, {4}, Dtype::f64);
    backward.grad_kl = numbers({0, 1, 1, 0}, {4}, Dtype::f64);
    const auto slopes = run(backward);
    const auto right_slopes = golden_answer(backward);
    for (int64_t n = 0; n < 4; ++n) {
      EXPECT_EQ(slopes.grad_logp.get(n), n % 3 == 0 ? 0.0 : 1.0) << n;
      EXPECT_EQ(right_slopes.grad_logp.value[static_cast<size_t>(n)], n % 3 == 0 ? 0.0 : 1.0) << n;
    }
  });
}

TEST(TakenOut, ACoefficientOf0LeavesNothingOfTheKlInRewards) {
  CallOf<ops::TokenRewards> call;
  call.logp = numbers({-kInfinity, -1, kNan}, {1, 3}, Dtype::f32);
  call.ref_logp = numbers({-1, -2, -1}, {1, 3}, Dtype::f32);
  call.scores = numbers({1, 2, 3}, {1, 3}, Dtype::f32);
  call.params.coefficient = 0;
  const auto got = run(call);
  const auto right = golden_answer(call);
  for (int64_t t = 0; t < 3; ++t) {
    EXPECT_EQ(got.rewards.get(t), static_cast<double>(t + 1));
    EXPECT_EQ(right.rewards.value[static_cast<size_t>(t)], static_cast<double>(t + 1));
  }
}

// Targets and other tokens of -inf whose share or class weight is 0.
template <class Call>
void expect_finite_cross_entropy(Call call, double smoothing, const std::string& what) {
  call.params.label_smoothing = smoothing;
  call.token_loss = wanted();
  const auto got = run(call);
  const auto right = golden_answer(call);
  EXPECT_TRUE(std::isfinite(got.loss.get(0))) << what << ": " << got.loss.get(0);
  EXPECT_NEAR(got.loss.get(0), right.loss.value[0], 1e-5) << what;
  for (int64_t n = 0; n < 2; ++n) {
    EXPECT_NEAR(got.token_loss.get(n), right.token_loss.value[static_cast<size_t>(n)], 1e-5) << what << n;
  }
}
TEST(TakenOut, AClassOfWeight0LeavesNothingOfALogitOfMinusInfinity) {
  for_each_target([] {
    CallOf<ops::CrossEntropy> call;
    call.logits = numbers({-kInfinity, 1, 2, -kInfinity, 3, 1}, {2, 3}, Dtype::f32);
    call.ids = integers({0, 2});
    call.class_weight = numbers({0, 1, 2}, {3}, Dtype::f32);
    for (const double smoothing : {0.0, 0.1, 1.0}) expect_finite_cross_entropy(call, smoothing, "cross_entropy");
    CallOf<ops::LinearCrossEntropy> linear;
    linear.hidden = numbers({1, 2}, {2, 1}, Dtype::f32);
    linear.weight = numbers({1, 2, 3}, {3, 1}, Dtype::f32);
    linear.bias = numbers({-kInfinity, 0, 1}, {3}, Dtype::f32);
    linear.ids = call.ids;
    linear.class_weight = call.class_weight;
    for (const double smoothing : {0.0, 0.1, 1.0}) expect_finite_cross_entropy(linear, smoothing, "linear");
  });
}
TEST(TakenOut, AShareOf0OfTheTargetLeavesNothingOfIt) {
  CallOf<ops::CrossEntropy> call;
  call.logits = numbers({1, 1, 2, 2, 3, 1}, {2, 3}, Dtype::f32);
  call.ids = integers({0, 2});
  expect_finite_cross_entropy(call, 1.0, "all of it is spread");
}

TEST(TakenOut, NoSmoothingLeavesNothingOfAnInfiniteMargin) {
  CallOf<ops::PreferenceLoss> call;
  call.chosen_logp = numbers({-1}, {1}, Dtype::f64);
  call.rejected_logp = numbers({-kInfinity}, {1}, Dtype::f64);
  EXPECT_EQ(run(call).loss.get(0), 0.0);
  EXPECT_EQ(golden_answer(call).loss.value[0], 0.0);
}

}  // namespace
}  // namespace rlk::test
