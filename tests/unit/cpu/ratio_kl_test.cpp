// ratio_kl and its backward against each trainer's own formula, at both sides of every clamp, and their promises.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>

#include <cmath>
#include <functional>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using ops::ratio_kl::KlKind, ops::ratio_kl::KlWeight, ops::ratio_kl::Params;
using ops::ratio_kl_backward::ClampGradient, ops::ratio_kl_backward::KlGradient;
using RatioKl = CallOf<ops::RatioKl>;

RatioKl call_of(Tensor logp, Tensor old_logp, Tensor ref_logp) {
  const Tensor kl = ref_logp.present() ? wanted() : Tensor();
  return {.logp = std::move(logp), .old_logp = std::move(old_logp), .ref_logp = std::move(ref_logp), .kl = kl};
}

// Without grad_kl: of ratio alone.
CallOf<ops::RatioKlBackward> backward_of(const RatioKl& c, Tensor grad_ratio, Tensor grad_kl) {
  auto backward = sdk::backward_of<CallOf<ops::RatioKlBackward>>(c);
  if (!grad_kl.present()) backward.ref_logp = Tensor();
  backward.grad_ratio = std::move(grad_ratio);
  backward.grad_kl = std::move(grad_kl);
  return backward;
}
Tensor gradient_of(const RatioKl& c, Tensor grad_ratio, Tensor grad_kl, KlGradient kl_gradient = KlGradient::value) {
  auto backward = backward_of(c, std::move(grad_ratio), std::move(grad_kl));
  backward.params.kl_gradient = kl_gradient;
  return run(backward).grad_logp;
}

Tensor repeated(double number, size_t times) {
  return numbers(List(times, number));
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
using Formula = std::function<Dual(Dual lp, Dual lo, Dual lr)>;

const Formula plain_ratio = [](Dual lp, Dual lo, Dual) { return exp(lp - lo); };  // TRL, slime, RL-Kernel
const Formula clamped_ratio = [](Dual lp, Dual lo, Dual) { return exp(clamp(lp - lo, -20, 20)); };  // verl, OpenRLHF
const Formula k1 = [](Dual lp, Dual, Dual lr) { return lp - lr; };
const Formula absolute = [](Dual lp, Dual, Dual lr) { return abs(lp - lr); };
const Formula k2 = [](Dual lp, Dual, Dual lr) { return Dual(0.5) * (lp - lr) * (lp - lr); };
const Formula k3 = [](Dual lp, Dual, Dual lr) { return exp(lr - lp) - (lr - lp) - 1; };
const Formula verl_low_var = [](Dual lp, Dual, Dual lr) {
  const Dual kl = clamp(lr - lp, -20, 20);
  return clamp(exp(kl) - kl - 1, -10, 10);
};
Formula clamped(const Formula& kl) {
  return [kl](Dual lp, Dual lo, Dual lr) { return clamp(kl(lp, lo, lr), -10, 10); };
}
// TRL's use_bias_correction_kl, slime's importance ratio.
Formula weighted(const Formula& kl) {
  return [kl](Dual lp, Dual lo, Dual lr) { return exp(lp - lo) * kl(lp, lo, lr); };
}
// verl's k1+, abs+ and k3+: the value of the base, the gradient of k2.
Formula straight_through(const Formula& base) {
  return [base](Dual lp, Dual lo, Dual lr) { return detach(base(lp, lo, lr)) + gradient_alone(k2(lp, lo, lr)); };
}
// compute_approx_kl with unbiased_gradient: the value of the base, the gradient of k2 by a weight of at most 10.
Formula unbiased(const Formula& base) {
  return [base](Dual lp, Dual lo, Dual lr) {
    const Dual weight = std::min(std::exp(lp.v - lo.v), 10.0);
    return detach(base(lp, lo, lr)) + gradient_alone(weight * k2(lp, lo, lr));
  };
}

// terms: how large the terms are that make the number, where they cancel.
void expect_close(double got, double want, double terms = 0) {
  EXPECT_NEAR(got, want, 1e-13 * std::max({1.0, std::fabs(want), terms}));
}

TEST(CpuRatioKl, MatchesEveryTrainersFormulaAndGradient) {
  struct Trainer {
    Params params;
    Formula ratio;
  };
  const Trainer plain = {{}, plain_ratio}, weighs = {{.kl_weight = KlWeight::ratio}, plain_ratio};
  const Trainer low_var = {{.value_clamp = 10}, plain_ratio};
  const Trainer weighs_low_var = {{.kl_weight = KlWeight::ratio, .value_clamp = 10}, plain_ratio};
  const Trainer verl = {{.log_ratio_clamp = 20}, clamped_ratio};
  const Trainer verl_k3 = {{.diff_clamp = 20, .value_clamp = 10, .log_ratio_clamp = 20}, clamped_ratio};
  const Trainer openrlhf = {{.value_clamp = 10, .log_ratio_clamp = 20}, clamped_ratio};
  struct Variant {
    const char* name;
    Trainer trainer;
    KlKind kind;
    Formula kl;
    KlGradient kl_gradient = KlGradient::value;
  };
  const Variant variants[] = {
      {"TRL, Liger, RL-Kernel", plain, KlKind::k3, k3},
      {"TRL and Liger with use_bias_correction_kl", weighs, KlKind::k3, weighted(k3)},
      {"verl low_var_kl", verl_k3, KlKind::k3, verl_low_var},
      {"verl k1", verl, KlKind::k1, k1},
      {"verl abs", verl, KlKind::abs, absolute},
      {"verl k2", verl, KlKind::k2, k2},
      {"verl k1+", verl, KlKind::k1, straight_through(k1), KlGradient::k2},
      {"verl abs+", verl, KlKind::abs, straight_through(absolute), KlGradient::k2},
      {"verl k3+", verl_k3, KlKind::k3, straight_through(verl_low_var), KlGradient::k2},
      {"OpenRLHF k1", openrlhf, KlKind::k1, clamped(k1)},
      {"OpenRLHF k2", openrlhf, KlKind::k2, clamped(k2)},
      {"OpenRLHF k3", openrlhf, KlKind::k3, clamped(k3)},
      {"OpenRLHF k1, unbiased_gradient", openrlhf, KlKind::k1, unbiased(clamped(k1)), KlGradient::k2_weighted},
      {"OpenRLHF k3, unbiased_gradient", openrlhf, KlKind::k3, unbiased(clamped(k3)), KlGradient::k2_weighted},
      {"slime k1", plain, KlKind::k1, k1},
      {"slime k2", plain, KlKind::k2, k2},
      {"slime k3", plain, KlKind::k3, k3},
      {"slime k1 with importance ratio", weighs, KlKind::k1, weighted(k1)},
      {"slime k2 with importance ratio", weighs, KlKind::k2, weighted(k2)},
      {"slime k3 with importance ratio", weighs, KlKind::k3, weighted(k3)},
      {"slime low_var_kl", low_var, KlKind::k3, clamped(k3)},
      {"slime low_var_kl with importance ratio", weighs_low_var, KlKind::k3, clamped(weighted(k3))},
  };
  for (const Variant& variant : variants) {
    RatioKl c = edges();
    c.params = variant.trainer.params;
    c.params.kl_kind = variant.kind;
    const auto out = run(c);
    const size_t n_tokens = list_of(c.logp).size();
    const Tensor one = repeated(1, n_tokens), zero = repeated(0, n_tokens);
    const Tensor of_ratio = gradient_of(c, one, zero, variant.kl_gradient);
    const Tensor of_kl = gradient_of(c, zero, one, variant.kl_gradient);
    for (int64_t n = 0; n < c.logp.size(); ++n) {
      const Dual lp = variable(c.logp.get(n)), lo = c.old_logp.get(n), lr = c.ref_logp.get(n);
      SCOPED_TRACE(std::string(variant.name) + ": lp - lo = " + std::to_string(lp.v - lo.v) +
                   ", lr - lp = " + std::to_string(lr.v - lp.v));
      const Dual ratio = variant.trainer.ratio(lp, lo, lr), kl = variant.kl(lp, lo, lr);
      expect_close(out.ratio.get(n), ratio.v);
      expect_close(of_ratio.get(n), ratio.d);
      expect_close(out.kl.get(n), kl.v);
      // The slope of w F(d) is w F(d) - w F'(d).
      expect_close(of_kl.get(n), kl.d, c.params.kl_weight == KlWeight::ratio ? std::fabs(kl.v) : 0);
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
    const double ratio = out.ratio.get(1);
    expect_close(ratio, std::exp(0.5));
    EXPECT_EQ(list_of(out.ratio), (std::vector<double>{masked_ratio, ratio, masked_ratio, 1.0}));
    EXPECT_EQ(out.kl.get(0), 0.0);
    EXPECT_EQ(out.kl.get(2), 0.0);
    expect_close(out.kl.get(1), std::exp(0.5) - 1.5);
    const Tensor gradient = gradient_of(c, numbers({kNan, 1, kNan, 1}), numbers({kNan, 0, kInfinity, 0}));
    EXPECT_EQ(list_of(gradient), (std::vector<double>{0, ratio, 0, 1}));
  }
}

// Conflict 6: with and without clamps, at d = 24.
TEST(CpuRatioKl, K3IsClampedOnlyOnDemand) {
  RatioKl c = call_of(numbers({-30}), Tensor(), numbers({-6}));
  expect_close(run(c).kl.get(0), std::exp(24.0) - 25);
  expect_close(gradient_of(c, repeated(0, 1), repeated(1, 1)).get(0), 1 - std::exp(24.0));
  c.params.diff_clamp = 20;
  expect_close(run(c).kl.get(0), std::exp(20.0) - 21);
  EXPECT_EQ(gradient_of(c, repeated(0, 1), repeated(1, 1)).get(0), 0.0);
  c.params.value_clamp = 10;
  EXPECT_EQ(run(c).kl.get(0), 10.0);
}

// Conflict 12. Two differences lie at a bound, two outside, one inside.
TEST(CpuRatioKl, ClampsPassWhatIsAskedForAtTheirBoundsAndNothingOutside) {
  RatioKl c =
      call_of(numbers({-20, -20, -20, -20, -20}), numbers({-40, -41, 0, 1, -20}), numbers({0, 1, -40, -41, -19}));
  EXPECT_EQ(backward_of(c, repeated(1, 5), repeated(0, 5)).params.clamp_gradient, ClampGradient::zero);  // the default
  for (const auto& [rule, k] :
       {std::pair(ClampGradient::zero, 0.0), {ClampGradient::half, 0.5}, {ClampGradient::pass, 1.0}}) {
    const auto gradient = [&, of = rule](const Tensor& grad_ratio, const Tensor& grad_kl) {
      auto call = backward_of(c, grad_ratio, grad_kl);
      call.params.clamp_gradient = of;
      std::vector<double> got = list_of(run(call).grad_logp);
      EXPECT_EQ(golden_answer(call).grad_logp.value, got);
      return got;
    };
    c.params = {.kl_kind = KlKind::k2, .diff_clamp = 20, .log_ratio_clamp = 20};
    EXPECT_EQ(gradient(repeated(1, 5), repeated(0, 5)),
              (std::vector<double>{k * std::exp(20.0), 0, k * std::exp(-20.0), 0, 1}));
    EXPECT_EQ(gradient(repeated(0, 5), repeated(1, 5)), (std::vector<double>{-20 * k, 0, 20 * k, 0, -1}));
    c.params = {.kl_kind = KlKind::k2, .value_clamp = 200};  // 20^2 / 2 exactly
    EXPECT_EQ(gradient(repeated(0, 5), repeated(1, 5)), (std::vector<double>{-20 * k, 0, 20 * k, 0, -1}));
  }
}

TEST(CpuRatioKl, WithoutOldLogpTheRatioIsOneAndKeepsItsGradient) {
  RatioKl c = call_of(numbers({-3, -700}), Tensor(), numbers({-2, -699}));
  EXPECT_EQ(list_of(run(c).ratio), (std::vector<double>{1, 1}));
  EXPECT_EQ(list_of(gradient_of(c, numbers({2, -3}), Tensor())), (std::vector<double>{2, -3}));
  // The weight exp(lp - sg(lp)) is 1 too, and its gradient adds the estimate.
  c.params = {.kl_kind = KlKind::k1, .kl_weight = KlWeight::ratio};
  EXPECT_EQ(list_of(run(c).kl), (std::vector<double>{-1, -1}));
  EXPECT_EQ(list_of(gradient_of(c, repeated(0, 2), repeated(1, 2))), (std::vector<double>{0, 0}));  // -1 + 1
}

TEST(CpuRatioKl, K3KeepsItsDigitsNearZeroAndIsInfiniteWhereTheTokenIsImpossible) {
  const RatioKl c = call_of(numbers({-1e-6, -kInfinity, -1}), Tensor(), numbers({0, -1, -kInfinity}));
  const Tensor kl = run(c).kl;
  EXPECT_NEAR(kl.get(0) / 5.0000016666670833e-13, 1, 1e-9);
  EXPECT_EQ(kl.get(1), kInfinity);
  EXPECT_EQ(kl.get(2), kInfinity);
}

// abs, k2 and k3 of log-probabilities that are nearly the same, and of all others.
TEST(CpuRatioKl, NoEstimateButK1IsEverNegative) {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      List logp, ref_logp;
      for (const double x : {-1e-30, -1e-9, -0.7, -3.0, -20.0}) {
        for (int exponent = -60; exponent <= 4; ++exponent) {
          for (const double sign : {-1.0, 1.0}) {
            logp.push_back(x);
            ref_logp.push_back(x + sign * std::ldexp(1.37, exponent));
          }
        }
      }
      for (const KlKind kind : {KlKind::abs, KlKind::k2, KlKind::k3}) {
        RatioKl c = call_of(numbers(logp, {}, dtype), Tensor(), numbers(ref_logp, {}, dtype));
        c.params.kl_kind = kind;
        const auto got = run(c);
        const auto right = golden_answer(c);
        for (int64_t n = 0; n < got.kl.size(); ++n) {
          const double d = c.ref_logp.get(n) - c.logp.get(n), of_golden = right.kl.value[static_cast<size_t>(n)];
          EXPECT_GE(got.kl.get(n), 0) << d;
          EXPECT_GE(of_golden, 0) << d;
          if (kind != KlKind::k3 || std::fabs(d) < 1e-15) continue;
          const auto wide = static_cast<long double>(d);  // whose expm1 has all digits
          const double exact = std::fabs(d) > 1e-5 ? static_cast<double>(std::expm1(wide) - wide)
                                                   : d * d * (0.5 + d * (1.0 / 6 + d / 24));
          EXPECT_NEAR(got.kl.get(n) / exact, 1, dtype == Dtype::f64 ? 1e-11 : 1e-6) << d;
          EXPECT_NEAR(of_golden / exact, 1, 1e-11) << d;
        }
      }
    }
  });
}

}  // namespace
}  // namespace rlk::test
