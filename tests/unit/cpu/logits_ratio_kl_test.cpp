// logits_ratio_kl and its backward: RL-Kernel's formula, the golden reference on every instruction set,
// data errors.
#include <rlk/sdk/ops/logits_ratio_kl.hpp>
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>

#include <cmath>
#include <limits>

#include "unit/cpu/both_logits.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using ops::logits_ratio_kl::KlKind, ops::logits_ratio_kl::KlWeight;
using LogitsRatioKl = CallOf<ops::LogitsRatioKl>;
using LogitsRatioKlGradient = CallOf<ops::LogitsRatioKlBackward>;

// Every output is asked for.
LogitsRatioKl call_of(Tensor policy, Tensor reference, Tensor ids) {
  LogitsRatioKl c;
  c.logits = std::move(policy);
  c.ref_logits = std::move(reference);
  c.ids = std::move(ids);
  c.kl = c.logp = c.lse = c.ref_logp = wanted();
  return c;
}

LogitsRatioKl make_case(Dtype dtype, int64_t rows, int64_t vocab) {
  Tensor ids(Dtype::i64, {rows});
  for (int64_t n = 0; n < rows; ++n) ids.set_int(n, (n * 7 + 3) % vocab);
  LogitsRatioKl c = call_of(random_tensor(dtype, {rows, vocab}, 2, 1), random_tensor(dtype, {rows, vocab}, 2, 2), ids);
  const double typical = -std::log(static_cast<double>(vocab));
  c.old_logp = random_tensor(accumulator(dtype), {rows}, 1, 3);
  for (int64_t n = 0; n < rows; ++n) c.old_logp.set(n, c.old_logp.get(n) + typical);
  return c;
}

// With lse and ref_logp of the forward, and random gradients.
LogitsRatioKlGradient backward_of(const LogitsRatioKl& c) {
  const auto out = run(c);
  LogitsRatioKlGradient backward;
  backward.logits = c.logits;
  backward.ids = c.ids;
  backward.lse = out.lse;
  backward.grad_ratio = random_tensor(out.lse.dtype(), {c.ids.size()}, 1, 4);
  backward.grad_kl = random_tensor(out.lse.dtype(), {c.ids.size()}, 1, 5);
  backward.old_logp = c.old_logp;
  backward.ref_logp = out.ref_logp;
  backward.mask = c.mask;
  backward.params.kl_kind = c.params.kl_kind;
  backward.params.kl_weight = c.params.kl_weight;
  backward.params.temperature = c.params.temperature;
  return backward;
}

// RL-Kernel's formula, spelt out: log-softmax by hand, k3, gradient c (onehot - softmax).
TEST(CpuLogitsRatioKl, MatchesRlKernelsFormulaAndGradient) {
  LogitsRatioKl c = make_case(Dtype::f64, 6, 50);
  c.mask = flags({1, 1, 0, 1, 0, 1});
  c.params.temperature = 0.8;
  const auto out = run(c);
  const LogitsRatioKlGradient backward = backward_of(c);
  const auto result = run(backward);
  const Tensor& gradient = result.grad_logits;
  EXPECT_EQ(result.error.kind, cpu::kNoDataError);
  for (int64_t n = 0; n < 6; ++n) {
    const auto softmax = [&](const Tensor& logits) {
      std::vector<double> p;
      double sum = 0;
      for (int64_t v = 0; v < 50; ++v) p.push_back(std::exp(logits.get(n * 50 + v) / c.params.temperature));
      for (const double weight : p) sum += weight;
      for (double& weight : p) weight /= sum;
      return p;
    };
    const bool active = c.mask.get_int(n) != 0;
    const std::vector<double> p = softmax(c.logits);
    const auto target = static_cast<size_t>(c.ids.get_int(n));
    const double lp = std::log(p[target]), lr = std::log(softmax(c.ref_logits)[target]);
    const double ratio = std::exp(lp - c.old_logp.get(n)), d = lr - lp;
    EXPECT_NEAR(out.ratio.get(n), active ? ratio : 1.0, 1e-12 * ratio);
    EXPECT_NEAR(out.kl.get(n), active ? std::exp(d) - d - 1 : 0.0, 1e-12 * std::max(1.0, std::exp(d)));
    EXPECT_NEAR(out.logp.get(n), active ? lp : 0, 1e-12);
    EXPECT_NEAR(out.ref_logp.get(n), active ? lr : 0, 1e-12);
    const double weight = active ? backward.grad_ratio.get(n) * ratio + backward.grad_kl.get(n) * (1 - std::exp(d)) : 0;
    for (size_t v = 0; v < 50; ++v) {
      const double want = weight * ((v == target ? 1 : 0) - p[v]) / c.params.temperature;
      EXPECT_NEAR(gradient.get(n * 50 + static_cast<int64_t>(v)), want, 1e-12 * std::max(1.0, std::fabs(weight)));
    }
  }
}

TEST(CpuLogitsRatioKl, MatchesGoldenOnEveryInstructionSet) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const auto& [rows, vocab] : std::vector<std::pair<int64_t, int64_t>>{{5, 37}, {1, 1}, {3, 8200}, {0, 9}}) {
        LogitsRatioKl c = make_case(dtype, rows, vocab);
        const auto expected = golden_answer(c);
        const auto out = run(c);
        EXPECT_TRUE(matches(out.ratio, expected.ratio, dtype));
        EXPECT_TRUE(matches(out.kl, expected.kl, dtype));
        EXPECT_TRUE(matches(out.lse, expected.lse, dtype));
        EXPECT_TRUE(matches(out.ref_logp, expected.ref_logp, dtype));
        for (const cpu::ParallelFor& hook : other_hooks()) {
          const auto again = run(c, hook);
          EXPECT_EQ(again.kl.bytes(), out.kl.bytes());
          EXPECT_EQ(again.ratio.bytes(), out.ratio.bytes());
        }
      }
    }
  });
}

// Conflict 12. 2 - 3 is a logp of -1 exactly: one difference to each model lies at its bound, one inside.
TEST(CpuLogitsRatioKl, ClampsPassWhatIsAskedForAtTheirBounds) {
  using ops::logits_ratio_kl_backward::ClampGradient;
  LogitsRatioKlGradient call;
  call.logits = Tensor(Dtype::f64, {2, 5}).fill([](int64_t) { return 2.0; });
  call.ids = integers({1, 2});
  call.lse = numbers({3, 3});
  call.old_logp = numbers({-1.5, -1.25});
  call.ref_logp = numbers({-0.75, -0.5});
  call.grad_ratio = numbers({1, 1});
  call.grad_kl = numbers({1, 1});
  call.params.kl_kind = KlKind::k1;
  call.params.log_ratio_clamp = 0.5;
  call.params.diff_clamp = 0.5;
  EXPECT_EQ(call.params.clamp_gradient, ClampGradient::zero);  // the default
  const std::pair<ClampGradient, double> rules[] = {
      {ClampGradient::zero, 0}, {ClampGradient::half, 0.5}, {ClampGradient::pass, 1}};
  for (const auto& [rule, k] : rules) {
    call.params.clamp_gradient = rule;
    const Tensor got = run(call).grad_logits;
    const auto golden = golden_answer(call).grad_logits;
    const double of_token[] = {k * std::exp(0.5) + 1, std::exp(0.25) + k};
    for (int64_t i = 0; i < 10; ++i) {
      const double one = i == 1 || i == 7 ? 1 : 0;
      EXPECT_NEAR(got.get(i), of_token[i / 5] * (one - std::exp(-1.0)), 1e-14);
      EXPECT_NEAR(got.get(i), golden.value[static_cast<size_t>(i)], 1e-14);
    }
  }
}

// Conflict 3: an active id out of range is reported and its row is NaN; a masked one is not read.
TEST(CpuLogitsRatioKl, AnActiveIdOutOfRangeIsADataErrorAndAMaskedOneIsNotLookedAt) {
  LogitsRatioKl c = make_case(Dtype::f32, 5, 11);
  LogitsRatioKlGradient backward = backward_of(c);
  c.mask = backward.mask = flags({1, 0, 1, 1, 1});
  c.ids.set_int(1, std::numeric_limits<int64_t>::min());
  backward.ids = c.ids;
  EXPECT_EQ(run(c).error.kind, cpu::kNoDataError);
  EXPECT_EQ(run(backward).error.kind, cpu::kNoDataError);
  backward.ids = c.ids.set_int(2, 11).set_int(4, -1);
  const auto out = run(c);
  EXPECT_EQ(out.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(out.error.row, 2);
  EXPECT_EQ(out.error.value, 11);
  const auto result = run(backward);
  const Tensor& gradient = result.grad_logits;
  EXPECT_EQ(result.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(result.error.row, 2);
  for (int64_t n = 0; n < 5; ++n) {
    const bool bad = n == 2 || n == 4;
    EXPECT_EQ(std::isnan(out.ratio.get(n)), bad);
    EXPECT_EQ(std::isnan(out.kl.get(n)), bad);
    EXPECT_EQ(std::isnan(gradient.get(n * 11)), bad);
  }
  EXPECT_EQ(out.ratio.get(1), 1.0);
  EXPECT_EQ(gradient.get(11), 0.0);
}

TEST(CpuLogitsRatioKl, ARowOfTheReferenceWithoutAFiniteLogitSpoilsOnlyItsKl) {
  LogitsRatioKl c = make_case(Dtype::f32, 4, 9);
  for (int64_t v = 0; v < 9; ++v) {
    c.ref_logits.set(1 * 9 + v, -kInfinity);
    c.logits.set(3 * 9 + v, -kInfinity);
  }
  const auto out = run(c);
  EXPECT_EQ(out.error.kind, cpu::kNoFiniteLogit);
  EXPECT_EQ(out.error.row, 1);
  EXPECT_FALSE(std::isnan(out.ratio.get(1)));
  EXPECT_TRUE(std::isnan(out.kl.get(1)));
  EXPECT_TRUE(std::isnan(out.ref_logp.get(1)));
  EXPECT_TRUE(std::isnan(out.ratio.get(3)));
  EXPECT_TRUE(std::isnan(out.kl.get(3)));
  EXPECT_FALSE(std::isnan(out.kl.get(0)));
}

TEST(CpuLogitsRatioKl, TheLowestRowInErrorIsToldOfPolicyAndReferenceAlike) {
  LogitsRatioKl c = call_of(Tensor(), Tensor(), integers({0, 1, 2, 3, 4}));
  const auto error_of = [&c](const Tensor& policy, const Tensor& reference) {
    c.logits = policy;
    c.ref_logits = reference;
    return run(c).error;
  };
  expect_lowest_error_of_both(random_tensor(Dtype::f32, {5, 7}, 1, 8), random_tensor(Dtype::f32, {5, 7}, 1, 9),
                              error_of, 1, 3);
}

// Conflict 1, and what lies at a masked position.
TEST(CpuLogitsRatioKl, NothingLeaksFromAMaskedToken) {
  for (const double masked_ratio : {1.0, 0.0}) {
    LogitsRatioKl c = make_case(Dtype::f32, 3, 7);
    c.mask = flags({1, 0, 1});
    c.params.masked_ratio = masked_ratio;
    c.old_logp.set(1, kNan);
    for (int64_t v = 0; v < 7; ++v) c.logits.set(7 + v, kNan);
    LogitsRatioKlGradient backward = backward_of(c);
    backward.grad_ratio.set(1, kNan);
    const auto out = run(c);
    EXPECT_EQ(out.error.kind, cpu::kNoDataError);
    EXPECT_EQ(out.ratio.get(1), masked_ratio);
    EXPECT_EQ(out.kl.get(1), 0.0);
    const Tensor gradient = run(backward).grad_logits;
    for (int64_t v = 0; v < 7; ++v) EXPECT_EQ(gradient.get(7 + v), 0.0);
  }
}

}  // namespace
}  // namespace rlk::test
