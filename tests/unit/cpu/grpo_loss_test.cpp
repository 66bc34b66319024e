// grpo_loss against RL-Kernel's published formula from logits to loss, and its promises: groups without variance,
// masks, data errors.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/grpo_loss.hpp>
#include <rlk/sdk/ops/grpo_loss_backward.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/logp/logp.hpp"
#include "unit/cpu/both_logits.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::grpo_loss;  // NOLINT(google-build-using-namespace): its enumerations
using GrpoCase = CallOf<ops::GrpoLoss>;
using Gradient = CallOf<ops::GrpoLossBackward>;
using ops::grpo_loss_backward::ClampGradient;

// Every output is asked for.
GrpoCase make_case(Dtype dtype, int64_t sequences, int64_t tokens, int64_t vocab, uint32_t seed,
                   Strides strides = Strides::contiguous) {
  GrpoCase c;
  c.policy_loss = c.kl = c.lse = c.logp = c.ref_logp = c.advantages = wanted();
  const Dtype wide = accumulator(dtype);
  c.logits = random_tensor(dtype, {sequences, tokens, vocab}, 1.0, seed, strides);
  c.ref_logits = random_tensor(dtype, {sequences, tokens, vocab}, 1.0, seed + 1, strides);
  c.rewards = random_tensor(wide, {sequences}, 1.0, seed + 2, strides);
  c.ids = Tensor(Dtype::i64, {sequences, tokens}, strides);
  c.old_logp = Tensor(wide, {sequences, tokens}, strides);
  const double typical = -std::log(static_cast<double>(vocab)) - 0.5;
  for (int64_t i = 0; i < sequences * tokens; ++i) {
    c.ids.set_int(i, i * 5 % vocab);
    c.old_logp.set(i, typical + 0.3 * std::sin(static_cast<double>(3 * i)));
  }
  return c;
}
void mask_some(GrpoCase& c) {
  c.mask = Tensor(Dtype::u8, c.ids.shape(), Strides::gaps);
  const int64_t vocab = c.logits.shape()[2];
  for (int64_t i = 0; i < c.ids.size(); ++i) {
    const bool masked = i % 3 == 1;
    c.mask.set_int(i, masked ? 0 : 255);
    if (!masked) continue;
    c.ids.set_int(i, int64_t{1} << 40);  // nowhere
    c.old_logp.set(i, kNan);
    for (int64_t v = 0; v < vocab; ++v) c.logits.set(i * vocab + v, kNan);
    for (int64_t v = 0; v < vocab; ++v) c.ref_logits.set(i * vocab + v, kNan);
  }
}

void set_boundaries(GrpoCase& c, const std::vector<int64_t>& boundaries, Dtype dtype = Dtype::i64) {
  c.group_boundaries = integers(boundaries, dtype);
  c.params.grouping = Grouping::boundaries;
}

// The gradient of the loss times 1, from what the forward saved.
Gradient backward_of(const GrpoCase& c, const GrpoCase& forward) {
  auto call = sdk::backward_of<Gradient>(c);
  call.lse = forward.lse;
  if (c.ref_logits.present()) call.ref_logp = forward.ref_logp;
  call.grad_loss = numbers({1}, {}, accumulator(c.logits.dtype()));
  return call;
}
Result<Gradient> run_backward(const GrpoCase& c, const GrpoCase& forward,
                              const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  return run(backward_of(c, forward), hook);
}

// selected_logprobs, group advantages, clipped surrogate and k3 as RL-Kernel publishes them; mm is the masked mean.
struct Published {
  double loss, policy_loss, kl;
};
Published published(const GrpoCase& c, const std::vector<std::pair<int64_t, int64_t>>& groups) {
  const int64_t tokens = c.logits.shape()[1], vocab = c.logits.shape()[2];
  const auto log_prob = [&](const Tensor& logits, int64_t i) {
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(logits.get(i * vocab + v) / c.params.temperature);
    return logits.get(i * vocab + c.ids.get_int(i)) / c.params.temperature - std::log(sum);
  };
  double policy = 0, kl = 0, count = 0;
  for (const auto& [begin, end] : groups) {
    const auto n = static_cast<double>(end - begin);
    double mean = 0, square = 0;
    for (int64_t b = begin; b < end; ++b) mean += c.rewards.get(b) / n;
    for (int64_t b = begin; b < end; ++b) square += (c.rewards.get(b) - mean) * (c.rewards.get(b) - mean);
    const double s = std::sqrt(square / (c.params.std == Std::unbiased ? n - 1 : n));
    for (int64_t b = begin; b < end; ++b) {
      const double a = (c.rewards.get(b) - mean) /
                       (c.params.eps_mode == EpsMode::additive ? s + c.params.eps : std::max(s, c.params.eps));
      for (int64_t i = b * tokens; i < (b + 1) * tokens; ++i) {
        if (c.mask.present() && c.mask.get_int(i) == 0) continue;
        const double lp = log_prob(c.logits, i), ratio = std::exp(lp - c.old_logp.get(i));
        const double clipped = std::min(std::max(ratio, 1 - c.params.clip_low), 1 + c.params.clip_high);
        policy += -std::min(ratio * a, clipped * a);
        if (c.ref_logits.present()) {
          const double d = log_prob(c.ref_logits, i) - lp;
          kl += std::exp(d) - d - 1;
        }
        count += 1;
      }
    }
  }
  count = std::max(count, 1e-8);
  return {policy / count + c.params.beta * kl / count, policy / count, kl / count};
}

void expect_published(GrpoCase c, const std::vector<std::pair<int64_t, int64_t>>& groups) {
  const Published expected = published(c, groups);
  const auto got = run(c);
  EXPECT_NEAR(got.loss.get(0), expected.loss, 1e-12);
  EXPECT_NEAR(got.policy_loss.get(0), expected.policy_loss, 1e-12);
  EXPECT_NEAR(got.kl.get(0), expected.kl, 1e-12);
  const auto gradient = run_backward(c, got);
  for (int64_t i = 0; i < c.logits.size(); ++i) {
    const int64_t token = i / c.logits.shape()[2];
    if (c.mask.present() && c.mask.get_int(token) == 0) {
      EXPECT_EQ(gradient.grad_logits.get(i), 0);
      continue;
    }
    const double value = c.logits.get(i), step = 1e-5;
    c.logits.set(i, value + step);
    const double above = published(c, groups).loss;
    c.logits.set(i, value - step);
    const double below = published(c, groups).loss;
    c.logits.set(i, value);
    EXPECT_NEAR(gradient.grad_logits.get(i), (above - below) / (2 * step), 1e-9) << i;
  }
}

TEST(GrpoLoss, IsThePublishedFormulaForEveryKindOfGroups) {
  for (const bool masked : {false, true}) {
    GrpoCase c = make_case(Dtype::f64, 6, 4, 11, 1);
    if (masked) mask_some(c);
    c.params.beta = 0.1;
    c.params.samples_per_prompt = 2;
    expect_published(c, {{0, 2}, {2, 4}, {4, 6}});
    c.params.samples_per_prompt = 0;
    expect_published(c, {{0, 6}});
    set_boundaries(c, {0, 2, 2, 6}, Dtype::i32);  // the second is empty
    const Tensor wide = c.ids;
    c.ids = Tensor(Dtype::i32, wide.shape());
    for (int64_t i = 0; i < wide.size(); ++i) {
      c.ids.set_int(i, std::min<int64_t>(wide.get_int(i), std::numeric_limits<int32_t>::max()));
    }
    expect_published(c, {{0, 2}, {2, 6}});
  }
}

TEST(GrpoLoss, TemperatureClipsAndStandardDeviationsOfTrlAreParameters) {
  GrpoCase c = make_case(Dtype::f64, 4, 5, 9, 2);
  c.ref_logits = {};
  c.params.temperature = 0.7;
  c.params.clip_low = 0.1;
  c.params.clip_high = 0.28;
  c.params.std = Std::unbiased;
  c.params.eps_mode = EpsMode::additive;
  c.params.eps = 1e-4;
  expect_published(c, {{0, 4}});
  const double trl = run(c).loss.get(0);
  c.params.std = Std::population;
  c.params.eps_mode = EpsMode::max_clamp;
  c.params.eps = 1e-6;
  EXPECT_GT(std::fabs(run(c).loss.get(0) / trl - 1), 0.01);
  expect_published(c, {{0, 4}});
}

TEST(GrpoLoss, NearlyEqualRewardsKeepTheirAdvantages) {
  GrpoCase c = make_case(Dtype::f64, 4, 1, 3, 3);
  for (int64_t b = 0; b < 4; ++b) c.rewards.set(b, 1000 + 0.01 * static_cast<double>(b));
  const Tensor advantages = run(c).advantages;
  for (int64_t b = 0; b < 4; ++b) {
    EXPECT_NEAR(advantages.get(b), (static_cast<double>(b) - 1.5) / std::sqrt(1.25), 1e-7) << b;
  }
  // In fp32 E[r^2] - E[r]^2 is 0 and the first advantage -15014.6.
  GrpoCase narrow = make_case(Dtype::f32, 4, 1, 3, 3);
  for (int64_t b = 0; b < 4; ++b) narrow.rewards.set(b, 1000 + 0.01 * static_cast<double>(b));
  EXPECT_NEAR(run(narrow).advantages.get(0), -1.34, 0.01);
}

TEST(GrpoLoss, GroupsWithoutVarianceHaveAdvantagesOfExactlyZero) {
  for (const auto& [reward, size] : {std::pair<double, int64_t>{1000.1, 8}, {1.1, 16}, {1.1, 1}, {0, 4}}) {
    for (const bool additive : {false, true}) {
      GrpoCase c = make_case(Dtype::f32, size, 2, 5, 4);
      c.params.eps_mode = additive ? EpsMode::additive : EpsMode::max_clamp;
      c.params.std = additive ? Std::unbiased : Std::population;
      for (int64_t b = 0; b < size; ++b) c.rewards.set(b, reward);
      const auto got = run(c);
      for (int64_t b = 0; b < size; ++b) EXPECT_EQ(got.advantages.get(b), 0);
      EXPECT_EQ(got.policy_loss.get(0), 0);
      const auto gradient = run_backward(c, got);
      for (int64_t i = 0; i < c.logits.size(); ++i) EXPECT_EQ(gradient.grad_logits.get(i), 0);
    }
  }
}

TEST(GrpoLoss, ANanRewardIsThatOfItsGroupAloneAlsoInAGroupOfOne) {
  for (const int64_t nan_at : {0, 1, 3}) {
    GrpoCase c = make_case(Dtype::f64, 4, 2, 5, 16);
    set_boundaries(c, {0, 2, 3, 4});  // the first of two, then of one
    c.rewards.set(nan_at, kNan);
    const auto got = run(c);
    const auto expected = golden_answer(c);
    for (int64_t b = 0; b < 4; ++b) {
      const bool own = nan_at < 2 ? b < 2 : b == nan_at;
      EXPECT_EQ(std::isnan(got.advantages.get(b)), own) << b;
      EXPECT_EQ(std::isnan(expected.advantages.value[static_cast<size_t>(b)]), own) << b;
    }
    EXPECT_TRUE(std::isnan(got.loss.get(0)));
    EXPECT_TRUE(std::isnan(expected.loss.value[0]));
  }
}

// RL-Kernel's Triton kernel takes groups of at most 1024.
TEST(GrpoLoss, GroupsOfMoreThan1024AreLegal) {
  GrpoCase c = make_case(Dtype::f64, 1030, 1, 3, 14);
  const auto got = run(c);
  const Published expected = published(c, {{0, 1030}});
  EXPECT_NEAR(got.loss.get(0), expected.loss, 1e-13);
  c.rewards.set(1029, c.rewards.get(1029) + 100);  // the last counts for the first
  EXPECT_NE(run(c).advantages.get(0), got.advantages.get(0));
}

// Two sequences of one token with logp exactly old_logp, and a clip of no width above or below: rho = 1 is the bound
// that the sign of the advantage asks about, and half of a tie goes through the clamp.
TEST(GrpoLoss, TheClipPassesWhatIsAskedForAtItsBound) {
  for (const bool upper : {true, false}) {
    GrpoCase c = make_case(Dtype::f64, 2, 1, 5, 40);
    c.rewards = numbers({1, -1});
    c.ref_logits = {};
    c.ref_logp = {};
    c.params.clip_high = upper ? 0 : 0.2;
    c.params.clip_low = upper ? 0.2 : 0;
    c.logits.fill([](int64_t) { return 2.0; });
    c.old_logp = numbers({-1, -1}, {2, 1});
    auto forward = run(c);
    forward.lse = numbers({3, 3}, {2, 1});  // 2 - 3 is old_logp exactly
    auto call = backward_of(c, forward);
    const auto gradient = [&](ClampGradient rule) {
      call.params.clamp_gradient = rule;
      Tensor got = run(call).grad_logits;
      const auto golden = golden_answer(call).grad_logits;
      for (int64_t i = 0; i < 10; ++i) EXPECT_NEAR(got.get(i), golden.value[static_cast<size_t>(i)], 1e-14);
      return got;
    };
    const Tensor zero = gradient(ClampGradient::zero), half = gradient(ClampGradient::half),
                 pass = gradient(ClampGradient::pass);
    EXPECT_EQ(call.params.clamp_gradient, ClampGradient::pass);
    EXPECT_EQ(run(backward_of(c, forward)).grad_logits.bytes(), zero.bytes());  // the default
    for (int64_t i = 0; i < 10; ++i) {  // -min(rho A, clamp(rho) A) ties at rho = 1 whatever the sign of A
      EXPECT_NE(pass.get(i), 0);
      EXPECT_NEAR(zero.get(i), pass.get(i) / 2, 1e-15);
      EXPECT_NEAR(half.get(i), pass.get(i) * 0.75, 1e-15);
    }
  }
}

// exp(ref_logp - logp) is beyond fp64 for the first token, rho for the second: the limit of the formula is an infinite
// gradient with the formula's signs.
TEST(GrpoLoss, BeyondFp64TheGradientIsInfiniteWithTheSignsOfTheFormula) {
  GrpoCase c = make_case(Dtype::f64, 2, 1, 4, 40);
  c.rewards = numbers({1, -1});
  c.logits = numbers({-800, 0, 1, 2, -3, 0, 1, 2}, {2, 1, 4});
  c.ref_logits.fill([](int64_t) { return 0.0; });
  c.ids.set_int(0, 0).set_int(1, 0);
  c.old_logp = numbers({-802, -900}, {2, 1});
  c.params.beta = 0.5;
  const auto call = backward_of(c, run(c));
  const Tensor got = run(call).grad_logits;
  const auto golden = golden_answer(call).grad_logits;
  for (int64_t i = 0; i < 8; ++i) {
    // The KL pulls the first token up, the surrogate pushes the second down.
    const double own = i < 4 ? -kInfinity : kInfinity;
    EXPECT_EQ(got.get(i), i % 4 == 0 ? own : -own) << i;
    EXPECT_EQ(golden.value[static_cast<size_t>(i)], got.get(i)) << i;
  }
}

TEST(GrpoLoss, NothingActiveOrNothingAtAllGivesZero) {
  GrpoCase c = make_case(Dtype::f32, 2, 3, 7, 5);
  c.mask = Tensor(Dtype::u8, {2, 3});
  for (int64_t i = 0; i < 6; ++i) c.mask.set_int(i, 0);
  c.params.beta = 1;
  const auto got = run(c);
  for (const Tensor* scalar : {&got.loss, &got.policy_loss, &got.kl}) EXPECT_EQ(scalar->get(0), 0);
  const auto gradient = run_backward(c, got);
  for (int64_t i = 0; i < 42; ++i) EXPECT_EQ(gradient.grad_logits.get(i), 0);
  for (const auto& [sequences, tokens] : {std::pair<int64_t, int64_t>{0, 3}, {3, 0}}) {
    GrpoCase empty = make_case(Dtype::bf16, sequences, tokens, 7, 6);
    const auto nothing = run(empty, cpu::tbb_parallel());
    EXPECT_EQ(nothing.loss.get(0), 0);
    EXPECT_EQ(run_backward(empty, nothing).error.kind, cpu::kNoDataError);
  }
}

TEST(GrpoLoss, WithoutBetaAnInfiniteKlDoesNotTouchTheLoss) {
  GrpoCase c = make_case(Dtype::f64, 2, 3, 7, 8);
  c.ref_logits.set(c.ids.get_int(0), -kInfinity);
  const auto got = run(c);
  EXPECT_EQ(got.kl.get(0), kInfinity);
  EXPECT_EQ(got.loss.get(0), got.policy_loss.get(0));
}

// Sequences that lie apart are given to logp one by one, and few rows are split.
TEST(GrpoLoss, TheWorkspaceHasRoomForOneSequenceOfALargeVocabulary) {
  ASSERT_EQ(cpu::logp_workspace_bytes(16 * 8, 5000), 0);
  ASSERT_GT(cpu::logp_workspace_bytes(8, 5000), 0);
  const auto bytes = [](int64_t vocab) {
    cpu::CallOf<ops::GrpoLoss> call;
    call.B = 16;
    call.T = 8;
    call.V = vocab;
    return cpu::kernel<ops::GrpoLoss>().workspace_bytes(call);
  };
  EXPECT_EQ(bytes(5000) - bytes(37), cpu::logp_workspace_bytes(8, 5000));
}

TEST(GrpoLoss, SequencesThatLieApartAreReadWhereTheyLie) {
  for (const auto& [sequences, tokens] : {std::pair<int64_t, int64_t>{2, 3}, {3, 1}}) {
    GrpoCase c = make_case(Dtype::f64, sequences, tokens, 7, 12, Strides::gaps);
    c.params.beta = 0.1;
    expect_published(c, {{0, sequences}});
  }
}

TEST(GrpoLoss, IgnoredIdsAreMasked) {
  GrpoCase c = make_case(Dtype::f64, 2, 4, 7, 7), masked = c;
  c.params.ignore_index = 3;
  masked.mask = Tensor(Dtype::u8, {2, 4});
  for (int64_t i = 0; i < 8; ++i) masked.mask.set_int(i, c.ids.get_int(i) == 3 ? 0 : 1);
  const auto got = run(c), expected = run(masked);
  EXPECT_EQ(got.loss.get(0), expected.loss.get(0));
  EXPECT_NE(got.loss.get(0), [&] {
    masked.mask = {};
    return run(masked).loss.get(0);
  }());
}

TEST(GrpoLoss, DataErrorsNameTheTokenInEveryLayout) {
  for (const Strides strides : {Strides::contiguous, Strides::gaps}) {
    GrpoCase c = make_case(Dtype::f32, 3, 4, 9, 9, strides);
    const auto good = run(c);
    c.ids.set_int(6, 9);
    c.ids.set_int(9, -1);
    const auto got = run(c);
    EXPECT_EQ(got.error.kind, cpu::kIdOutOfRange);
    EXPECT_EQ(got.error.row, 6);
    EXPECT_EQ(got.error.value, 9);
    EXPECT_TRUE(std::isnan(got.loss.get(0)) && std::isnan(got.policy_loss.get(0)) && std::isnan(got.kl.get(0)));
    EXPECT_TRUE(std::isnan(got.lse.get(6)) && std::isnan(got.logp.get(9)));
    EXPECT_EQ(got.lse.get(5), good.lse.get(5));
    const auto gradient = run_backward(c, good);
    EXPECT_EQ(gradient.error.row, 6);
    for (int64_t i = 0; i < 108; ++i) {
      EXPECT_EQ(std::isnan(gradient.grad_logits.get(i)), i / 9 == 6 || i / 9 == 9) << i;
    }

    c = make_case(Dtype::f32, 3, 4, 9, 9, strides);
    for (int64_t v = 0; v < 9; ++v) c.ref_logits.set(18 + v, -kInfinity);
    for (int64_t v = 0; v < 9; ++v) c.logits.set(63 + v, -kInfinity);
    const auto spoilt = run(c);
    EXPECT_EQ(spoilt.error.kind, cpu::kNoFiniteLogit);
    EXPECT_EQ(spoilt.error.row, 2);  // of the reference, before that of the policy
    EXPECT_TRUE(std::isnan(spoilt.ref_logp.get(2)) && !std::isnan(spoilt.logp.get(2)));
    EXPECT_TRUE(std::isnan(spoilt.logp.get(7)) && std::isnan(spoilt.loss.get(0)));
  }
}

TEST(GrpoLoss, TheLowestTokenInErrorIsToldOfPolicyAndReferenceAlike) {
  GrpoCase c = make_case(Dtype::f64, 2, 3, 7, 9);
  const Tensor policy = c.logits, reference = c.ref_logits;
  const auto error_of = [&c](const Tensor& of_policy, const Tensor& of_reference) {
    c.logits = of_policy;
    c.ref_logits = of_reference;
    return run(c).error;
  };
  expect_lowest_error_of_both(policy, reference, error_of, 1, 4);
}

}  // namespace
}  // namespace rlk::test
