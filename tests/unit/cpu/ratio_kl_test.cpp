// ratio_kl and its backward against each trainer's own formula, at both sides of every clamp, and their promises.
#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>

#include <cmath>
#include <limits>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using ops::ratio_kl::KlKind, ops::ratio_kl::KlWeight, ops::ratio_kl::Params;
using ops::ratio_kl_backward::ClampGradient, ops::ratio_kl_backward::KlGradient;
using RatioKl = CallOf<ops::RatioKl>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

RatioKl call_of(Tensor logp, Tensor old_logp, Tensor ref_logp) {
  RatioKl c;
  c.logp = std::move(logp);
  c.old_logp = std::move(old_logp);
  c.ref_logp = std::move(ref_logp);
  if (c.ref_logp.present()) c.kl = wanted();
  return c;
}

// Without grad_kl: of ratio alone.
CallOf<ops::RatioKlBackward> backward_of(const RatioKl& c, Tensor grad_ratio, Tensor grad_kl,
                                         KlGradient kl_gradient = KlGradient::value) {
  CallOf<ops::RatioKlBackward> backward;
  backward.logp = c.logp;
  backward.grad_ratio = std::move(grad_ratio);
  backward.old_logp = c.old_logp;
  if (grad_kl.present()) backward.ref_logp = c.ref_logp;
  backward.grad_kl = std::move(grad_kl);
  backward.mask = c.mask;
  backward.params.kl_kind = c.params.kl_kind;
  backward.params.kl_gradient = kl_gradient;
  backward.params.kl_weight = c.params.kl_weight;
  backward.params.diff_clamp = c.params.diff_clamp;
  backward.params.value_clamp = c.params.value_clamp;
  backward.params.log_ratio_clamp = c.params.log_ratio_clamp;
  return backward;
}
Tensor gradient_of(const RatioKl& c, Tensor grad_ratio, Tensor grad_kl,
                   const cpu::ParallelFor& hook = cpu::serial_parallel(), KlGradient kl_gradient = KlGradient::value) {
  return run(backward_of(c, std::move(grad_ratio), std::move(grad_kl), kl_gradient), hook).grad_logp;
}

Tensor ones(int64_t n, Dtype dtype = Dtype::f64) {
  return Tensor(dtype, {n}).fill([](int64_t) { return 1.0; });
}
Tensor zeros(int64_t n, Dtype dtype = Dtype::f64) {
  return Tensor(dtype, {n}).fill([](int64_t) { return 0.0; });
}

// Log-probabilities whose differences lie inside, exactly at and outside of the clamps 10 and 20.
RatioKl edges() {
  std::vector<double> logp, old_logp, ref_logp;
  const std::vector<double> steps = {0, 0.25, -0.25, 2.5, -2.5, 10, -10, 11, -11, 20, -20, 24, -24};
  for (const double delta : steps) {
    for (const double d : steps) {
      logp.push_back(-32);
      old_logp.push_back(-32 - delta);
      ref_logp.push_back(-32 + d);
    }
  }
  return call_of(numbers(logp), numbers(old_logp), numbers(ref_logp));
}

// ---- the trainers' formulas: the current log-probability carries the gradient ---------------------------------------
using Formula = Dual (*)(Dual lp, Dual lo, Dual lr);

Dual plain_ratio(Dual lp, Dual lo, Dual) {
  return exp(lp - lo);
}  // TRL, slime, RL-Kernel
Dual clamped_ratio(Dual lp, Dual lo, Dual) {
  return exp(clamp(lp - lo, -20, 20));
}  // verl, OpenRLHF
Dual k1(Dual lp, Dual, Dual lr) {
  return lp - lr;
}  // verl, slime
Dual absolute(Dual lp, Dual, Dual lr) {
  return abs(lp - lr);
}  // verl
Dual k2(Dual lp, Dual, Dual lr) {
  return Dual(0.5) * (lp - lr) * (lp - lr);
}  // verl, slime
Dual k3(Dual lp, Dual, Dual lr) {
  return exp(lr - lp) - (lr - lp) - 1;
}  // TRL, slime, RL-Kernel
Dual trl_weighted(Dual lp, Dual lo, Dual lr) {
  return k3(lp, lo, lr) * exp(lp - lo);
}  // use_bias_correction_kl
Dual slime_low_var(Dual lp, Dual lo, Dual lr) {
  return clamp(k3(lp, lo, lr), -10, 10);
}
Dual slime_weighted(Dual lp, Dual lo, Dual lr) {
  return clamp(exp(lp - lo) * k3(lp, lo, lr), -10, 10);
}
Dual slime_weighted_k1(Dual lp, Dual lo, Dual lr) {
  return exp(lp - lo) * k1(lp, lo, lr);
}
Dual slime_weighted_k2(Dual lp, Dual lo, Dual lr) {
  return exp(lp - lo) * k2(lp, lo, lr);
}
Dual verl_low_var(Dual lp, Dual, Dual lr) {
  const Dual kl = clamp(lr - lp, -20, 20);
  return clamp(exp(kl) - kl - 1, -10, 10);
}
Dual openrlhf_k1(Dual lp, Dual, Dual lr) {
  return clamp(lp - lr, -10, 10);
}
Dual openrlhf_k2(Dual lp, Dual lo, Dual lr) {
  return clamp(k2(lp, lo, lr), -10, 10);
}
Dual openrlhf_k3(Dual lp, Dual lo, Dual lr) {
  return clamp(k3(lp, lo, lr), -10, 10);
}
// verl's straight-through forms: the value of the base, the gradient of k2.
Dual straight_through(Dual base, Dual lp, Dual lr) {
  const Dual backward = k2(lp, 0, lr);
  return backward - detach(backward) + detach(base);
}
Dual verl_k1_plus(Dual lp, Dual lo, Dual lr) {
  return straight_through(k1(lp, lo, lr), lp, lr);
}
Dual verl_abs_plus(Dual lp, Dual lo, Dual lr) {
  return straight_through(absolute(lp, lo, lr), lp, lr);
}
Dual verl_k3_plus(Dual lp, Dual lo, Dual lr) {
  return straight_through(verl_low_var(lp, lo, lr), lp, lr);
}

// compute_approx_kl with unbiased_gradient: the value of the base, the gradient of k2 by a weight of at most 10.
Dual openrlhf_unbiased(Dual base, Dual lp, Dual lo, Dual lr) {
  const Dual backward = detach(Dual(std::min(std::exp(lp.v - lo.v), 10.0))) * k2(lp, lo, lr);
  return detach(base) + backward - detach(backward);
}
Dual openrlhf_unbiased_k1(Dual lp, Dual lo, Dual lr) {
  return openrlhf_unbiased(openrlhf_k1(lp, lo, lr), lp, lo, lr);
}
Dual openrlhf_unbiased_k3(Dual lp, Dual lo, Dual lr) {
  return openrlhf_unbiased(openrlhf_k3(lp, lo, lr), lp, lo, lr);
}

// terms: how large the terms are that make the number, where they cancel.
void expect_close(double got, double want, double terms = 0) {
  EXPECT_NEAR(got, want, 1e-13 * std::max({1.0, std::fabs(want), terms}));
}

TEST(CpuRatioKl, MatchesEveryTrainersFormulaAndGradient) {
  struct Trainer {
    const char* name;
    Params params;
    Formula ratio, kl;
    KlGradient kl_gradient = KlGradient::value;
  };
  const KlWeight weighted = KlWeight::ratio;
  const Trainer trainers[] = {
      {"TRL", {}, plain_ratio, k3},
      {"TRL with use_bias_correction_kl", {.kl_weight = weighted}, plain_ratio, trl_weighted},
      {"Liger", {}, plain_ratio, k3},
      {"Liger with use_bias_correction_kl", {.kl_weight = weighted}, plain_ratio, trl_weighted},
      {"verl low_var_kl", {.diff_clamp = 20, .value_clamp = 10, .log_ratio_clamp = 20}, clamped_ratio, verl_low_var},
      {"verl k1", {.kl_kind = KlKind::k1, .log_ratio_clamp = 20}, clamped_ratio, k1},
      {"verl abs", {.kl_kind = KlKind::abs, .log_ratio_clamp = 20}, clamped_ratio, absolute},
      {"verl k2", {.kl_kind = KlKind::k2, .log_ratio_clamp = 20}, clamped_ratio, k2},
      {"verl k1+", {.kl_kind = KlKind::k1, .log_ratio_clamp = 20}, clamped_ratio, verl_k1_plus, KlGradient::k2},
      {"verl abs+", {.kl_kind = KlKind::abs, .log_ratio_clamp = 20}, clamped_ratio, verl_abs_plus, KlGradient::k2},
      {"verl k3+",
       {.diff_clamp = 20, .value_clamp = 10, .log_ratio_clamp = 20},
       clamped_ratio,
       verl_k3_plus,
       KlGradient::k2},
      {"OpenRLHF k1", {.kl_kind = KlKind::k1, .value_clamp = 10, .log_ratio_clamp = 20}, clamped_ratio, openrlhf_k1},
      {"OpenRLHF k2", {.kl_kind = KlKind::k2, .value_clamp = 10, .log_ratio_clamp = 20}, clamped_ratio, openrlhf_k2},
      {"OpenRLHF k3", {.value_clamp = 10, .log_ratio_clamp = 20}, clamped_ratio, openrlhf_k3},
      {"OpenRLHF k1 with unbiased_gradient",
       {.kl_kind = KlKind::k1, .value_clamp = 10, .log_ratio_clamp = 20},
       clamped_ratio,
       openrlhf_unbiased_k1,
       KlGradient::k2_weighted},
      {"OpenRLHF k3 with unbiased_gradient",
       {.value_clamp = 10, .log_ratio_clamp = 20},
       clamped_ratio,
       openrlhf_unbiased_k3,
       KlGradient::k2_weighted},
      {"slime k1", {.kl_kind = KlKind::k1}, plain_ratio, k1},
      {"slime k2", {.kl_kind = KlKind::k2}, plain_ratio, k2},
      {"slime k3", {}, plain_ratio, k3},
      {"slime k1 with importance ratio",
       {.kl_kind = KlKind::k1, .kl_weight = weighted},
       plain_ratio,
       slime_weighted_k1},
      {"slime k2 with importance ratio",
       {.kl_kind = KlKind::k2, .kl_weight = weighted},
       plain_ratio,
       slime_weighted_k2},
      {"slime k3 with importance ratio", {.kl_weight = weighted}, plain_ratio, trl_weighted},
      {"slime low_var_kl", {.value_clamp = 10}, plain_ratio, slime_low_var},
      {"slime low_var_kl with importance ratio",
       {.kl_weight = weighted, .value_clamp = 10},
       plain_ratio,
       slime_weighted},
      {"RL-Kernel", {}, plain_ratio, k3},
  };
  for (const Trainer& trainer : trainers) {
    RatioKl c = edges();
    c.params = trainer.params;
    const auto out = run(c);
    const int64_t n_tokens = c.logp.size();
    const auto slope = [&](const Tensor& grad_ratio, const Tensor& grad_kl) {
      return gradient_of(c, grad_ratio, grad_kl, cpu::serial_parallel(), trainer.kl_gradient);
    };
    const Tensor of_ratio = slope(ones(n_tokens), zeros(n_tokens)), of_kl = slope(zeros(n_tokens), ones(n_tokens));
    for (int64_t n = 0; n < n_tokens; ++n) {
      const Dual lp = variable(c.logp.get(n)), lo = c.old_logp.get(n), lr = c.ref_logp.get(n);
      SCOPED_TRACE(std::string(trainer.name) + ": lp - lo = " + std::to_string(lp.v - lo.v) +
                   ", lr - lp = " + std::to_string(lr.v - lp.v));
      expect_close(out.ratio.get(n), trainer.ratio(lp, lo, lr).v);
      expect_close(out.kl.get(n), trainer.kl(lp, lo, lr).v);
      expect_close(of_ratio.get(n), trainer.ratio(lp, lo, lr).d);
      // The slope of w F(d) is w F(d) - w F'(d).
      const bool cancels = trainer.params.kl_weight == weighted;
      expect_close(of_kl.get(n), trainer.kl(lp, lo, lr).d, cancels ? std::fabs(trainer.kl(lp, lo, lr).v) : 0);
    }
  }
}

// Conflict 1: RL-Kernel's operator writes 1 at masked positions, its reference 0.
TEST(CpuRatioKl, MaskedTokensHaveTheRatioThatIsAskedForAndNothingLeaks) {
  for (const double masked_ratio : {1.0, 0.0}) {
    RatioKl c =
        call_of(numbers({kNan, -1, -kInfinity, -2}), numbers({kNan, -1.5, kNan, -2}), numbers({-1, -0.5, kNan, -3}));
    c.mask = flags({0, 1, 0, 255});
    c.params.masked_ratio = masked_ratio;
    const auto out = run(c);
    EXPECT_EQ(list_of(out.ratio), (std::vector<double>{masked_ratio, std::exp(0.5), masked_ratio, 1.0}));
    EXPECT_EQ(out.kl.get(0), 0.0);
    EXPECT_EQ(out.kl.get(2), 0.0);
    expect_close(out.kl.get(1), std::exp(0.5) - 1.5);
    const Tensor gradient = gradient_of(c, numbers({kNan, 1, kNan, 1}), numbers({kNan, 0, kInfinity, 0}));
    EXPECT_EQ(list_of(gradient), (std::vector<double>{0, std::exp(0.5), 0, 1}));
  }
}

// Conflict 6: with and without clamps, at d = 24.
TEST(CpuRatioKl, K3IsClampedOnlyOnDemand) {
  RatioKl c = call_of(numbers({-30}), Tensor(), numbers({-6}));
  expect_close(run(c).kl.get(0), std::exp(24.0) - 25);
  expect_close(gradient_of(c, zeros(1), ones(1)).get(0), 1 - std::exp(24.0));
  c.params.diff_clamp = 20;
  expect_close(run(c).kl.get(0), std::exp(20.0) - 21);
  EXPECT_EQ(gradient_of(c, zeros(1), ones(1)).get(0), 0.0);
  c.params.value_clamp = 10;
  EXPECT_EQ(run(c).kl.get(0), 10.0);
}

// Conflict 12. Two differences lie at a bound, two outside, one inside.
TEST(CpuRatioKl, ClampsPassWhatIsAskedForAtTheirBoundsAndNothingOutside) {
  RatioKl c =
      call_of(numbers({-20, -20, -20, -20, -20}), numbers({-40, -41, 0, 1, -20}), numbers({0, 1, -40, -41, -19}));
  EXPECT_EQ(backward_of(c, ones(5), zeros(5)).params.clamp_gradient, ClampGradient::zero);  // the default
  const std::pair<ClampGradient, double> rules[] = {
      {ClampGradient::zero, 0}, {ClampGradient::half, 0.5}, {ClampGradient::pass, 1}};
  for (const auto& [rule, k] : rules) {
    const auto gradient = [&, of = rule](const Tensor& grad_ratio, const Tensor& grad_kl) {
      auto call = backward_of(c, grad_ratio, grad_kl);
      call.params.clamp_gradient = of;
      std::vector<double> got = list_of(run(call).grad_logp);
      EXPECT_EQ(golden_answer(call).grad_logp.value, got);
      return got;
    };
    c.params = {.kl_kind = KlKind::k2, .diff_clamp = 20, .log_ratio_clamp = 20};
    EXPECT_EQ(gradient(ones(5), zeros(5)), (std::vector<double>{k * std::exp(20.0), 0, k * std::exp(-20.0), 0, 1}));
    EXPECT_EQ(gradient(zeros(5), ones(5)), (std::vector<double>{-20 * k, 0, 20 * k, 0, -1}));
    c.params = {.kl_kind = KlKind::k2, .value_clamp = 200};  // 20^2 / 2 exactly
    EXPECT_EQ(gradient(zeros(5), ones(5)), (std::vector<double>{-20 * k, 0, 20 * k, 0, -1}));
  }
}

TEST(CpuRatioKl, WithoutOldLogpTheRatioIsOneAndKeepsItsGradient) {
  RatioKl c = call_of(numbers({-3, -700}), Tensor(), numbers({-2, -699}));
  EXPECT_EQ(list_of(run(c).ratio), (std::vector<double>{1, 1}));
  EXPECT_EQ(list_of(gradient_of(c, numbers({2, -3}), Tensor())), (std::vector<double>{2, -3}));
  // The weight exp(lp - sg(lp)) is 1 too, and its gradient adds the estimate.
  c.params = {.kl_kind = KlKind::k1, .kl_weight = KlWeight::ratio};
  EXPECT_EQ(list_of(run(c).kl), (std::vector<double>{-1, -1}));
  EXPECT_EQ(list_of(gradient_of(c, zeros(2), ones(2))), (std::vector<double>{0, 0}));  // -1 + 1
}

TEST(CpuRatioKl, K3KeepsItsDigitsNearZeroAndIsInfiniteWhereTheTokenIsImpossible) {
  const RatioKl c = call_of(numbers({-1e-6, -kInfinity, -1}), Tensor(), numbers({0, -1, -kInfinity}));
  const Tensor kl = run(c).kl;
  EXPECT_NEAR(kl.get(0) / 5.0000016666670833e-13, 1, 1e-9);
  EXPECT_EQ(kl.get(1), kInfinity);
  EXPECT_EQ(kl.get(2), kInfinity);
}

TEST(CpuRatioKl, NoTokensAreNoWork) {
  const RatioKl c = call_of(Tensor(Dtype::f32, {0}), Tensor(), Tensor());
  EXPECT_EQ(run(c).ratio.size(), 0);
  EXPECT_EQ(gradient_of(c, zeros(0, Dtype::f32), Tensor()).size(), 0);
}

}  // namespace
}  // namespace rlk::test
