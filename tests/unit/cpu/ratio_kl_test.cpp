// ratio_kl and its backward against each trainer's own formula, at both sides of every clamp, and their promises.
#include <rlk/ops/ratio_kl.h>
#include <rlk/ops/ratio_kl_backward.h>

#include <cmath>
#include <limits>

#include "core/cpu/policy/ratio_kl.hpp"
#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using cpu::KlKind;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RatioKlCase {
  Tensor logp, old_logp, ref_logp, mask;
  cpu::RatioKlOptions options;
  double masked_ratio = 1;
};
struct RatioKlOutputs {
  Tensor ratio, kl;
};

RatioKlOutputs run(RatioKlCase& c, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  const Dtype dtype = accumulator(c.logp.dtype());
  RatioKlOutputs out{Tensor(dtype, c.logp.shape()), c.ref_logp.present() ? Tensor(dtype, c.logp.shape()) : Tensor()};
  cpu::RatioKlArgs args;
  args.n = c.logp.size();
  args.logp = array_of(c.logp);
  args.old_logp = array_of(c.old_logp);
  args.ref_logp = array_of(c.ref_logp);
  args.mask = mask_of(c.mask);
  args.options = c.options;
  args.masked_ratio = c.masked_ratio;
  args.ratio = array_of(out.ratio);
  args.kl = array_of(out.kl);
  cpu::ratio_kl(args, hook);
  return out;
}

// Without grad_kl: of ratio alone.
Tensor run_backward(RatioKlCase& c, Tensor grad_ratio, Tensor grad_kl,
                    const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  Tensor grad_logp(c.logp.dtype(), c.logp.shape());
  cpu::RatioKlBackwardArgs args;
  args.n = c.logp.size();
  args.logp = array_of(c.logp);
  args.grad_ratio = array_of(grad_ratio);
  args.grad_kl = array_of(grad_kl);
  args.old_logp = array_of(c.old_logp);
  if (grad_kl.present()) args.ref_logp = array_of(c.ref_logp);
  args.mask = mask_of(c.mask);
  args.options = c.options;
  args.grad_logp = array_of(grad_logp);
  cpu::ratio_kl_backward(args, hook);
  return grad_logp;
}

Tensor ones(int64_t n) {
  return Tensor(Dtype::f64, {n}).fill([](int64_t) { return 1.0; });
}
Tensor zeros(int64_t n) {
  return Tensor(Dtype::f64, {n}).fill([](int64_t) { return 0.0; });
}

// Log-probabilities whose differences lie inside, exactly at and outside of the clamps 10 and 20.
RatioKlCase edges() {
  std::vector<double> logp, old_logp, ref_logp;
  const std::vector<double> steps = {0, 0.25, -0.25, 2.5, -2.5, 10, -10, 11, -11, 20, -20, 24, -24};
  for (const double delta : steps) {
    for (const double d : steps) {
      logp.push_back(-32);
      old_logp.push_back(-32 - delta);
      ref_logp.push_back(-32 + d);
    }
  }
  RatioKlCase c;
  c.logp = numbers(logp);
  c.old_logp = numbers(old_logp);
  c.ref_logp = numbers(ref_logp);
  return c;
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

void expect_close(double got, double want) {
  EXPECT_NEAR(got, want, 1e-13 * std::max(1.0, std::fabs(want)));
}

TEST(CpuRatioKl, MatchesEveryTrainersFormulaAndGradient) {
  struct Trainer {
    const char* name;
    cpu::RatioKlOptions options;
    Formula ratio, kl;
  };
  const Trainer trainers[] = {
      {"TRL", {}, plain_ratio, k3},
      {"TRL with use_bias_correction_kl", {KlKind::k3, true}, plain_ratio, trl_weighted},
      {"Liger", {}, plain_ratio, k3},
      {"Liger with use_bias_correction_kl", {KlKind::k3, true}, plain_ratio, trl_weighted},
      {"verl low_var_kl", {KlKind::k3, false, 20, 10, 20}, clamped_ratio, verl_low_var},
      {"verl k1", {KlKind::k1, false, 0, 0, 20}, clamped_ratio, k1},
      {"verl abs", {KlKind::abs, false, 0, 0, 20}, clamped_ratio, absolute},
      {"verl k2", {KlKind::k2, false, 0, 0, 20}, clamped_ratio, k2},
      {"verl k1+", {KlKind::k1, false, 0, 0, 20, true}, clamped_ratio, verl_k1_plus},
      {"verl abs+", {KlKind::abs, false, 0, 0, 20, true}, clamped_ratio, verl_abs_plus},
      {"verl k3+", {KlKind::k3, false, 20, 10, 20, true}, clamped_ratio, verl_k3_plus},
      {"OpenRLHF k1", {KlKind::k1, false, 0, 10, 20}, clamped_ratio, openrlhf_k1},
      {"OpenRLHF k2", {KlKind::k2, false, 0, 10, 20}, clamped_ratio, openrlhf_k2},
      {"OpenRLHF k3", {KlKind::k3, false, 0, 10, 20}, clamped_ratio, openrlhf_k3},
      {"slime k1", {KlKind::k1}, plain_ratio, k1},
      {"slime k2", {KlKind::k2}, plain_ratio, k2},
      {"slime k3", {KlKind::k3}, plain_ratio, k3},
      {"slime k1 with importance ratio", {KlKind::k1, true}, plain_ratio, slime_weighted_k1},
      {"slime k2 with importance ratio", {KlKind::k2, true}, plain_ratio, slime_weighted_k2},
      {"slime k3 with importance ratio", {KlKind::k3, true}, plain_ratio, trl_weighted},
      {"slime low_var_kl", {KlKind::k3, false, 0, 10, 0}, plain_ratio, slime_low_var},
      {"slime low_var_kl with importance ratio", {KlKind::k3, true, 0, 10, 0}, plain_ratio, slime_weighted},
      {"RL-Kernel", {}, plain_ratio, k3},
  };
  for (const Trainer& trainer : trainers) {
    RatioKlCase c = edges();
    c.options = trainer.options;
    const RatioKlOutputs out = run(c);
    const int64_t n_tokens = c.logp.size();
    const Tensor of_ratio = run_backward(c, ones(n_tokens), zeros(n_tokens));
    const Tensor of_kl = run_backward(c, zeros(n_tokens), ones(n_tokens));
    for (int64_t n = 0; n < n_tokens; ++n) {
      const Dual lp = variable(c.logp.get(n)), lo = c.old_logp.get(n), lr = c.ref_logp.get(n);
      SCOPED_TRACE(std::string(trainer.name) + ": lp - lo = " + std::to_string(lp.v - lo.v) +
                   ", lr - lp = " + std::to_string(lr.v - lp.v));
      expect_close(out.ratio.get(n), trainer.ratio(lp, lo, lr).v);
      expect_close(out.kl.get(n), trainer.kl(lp, lo, lr).v);
      expect_close(of_ratio.get(n), trainer.ratio(lp, lo, lr).d);
      expect_close(of_kl.get(n), trainer.kl(lp, lo, lr).d);
    }
  }
}

// Conflict 1: RL-Kernel's operator writes 1 at masked positions, its reference 0.
TEST(CpuRatioKl, MaskedTokensHaveTheRatioThatIsAskedForAndNothingLeaks) {
  for (const double masked_ratio : {1.0, 0.0}) {
    RatioKlCase c;
    c.logp = numbers({kNan, -1, -kInfinity, -2});
    c.old_logp = numbers({kNan, -1.5, kNan, -2});
    c.ref_logp = numbers({-1, -0.5, kNan, -3});
    c.mask = flags({0, 1, 0, 255});
    c.masked_ratio = masked_ratio;
    const RatioKlOutputs out = run(c);
    EXPECT_EQ(list_of(out.ratio), (std::vector<double>{masked_ratio, std::exp(0.5), masked_ratio, 1.0}));
    EXPECT_EQ(out.kl.get(0), 0.0);
    EXPECT_EQ(out.kl.get(2), 0.0);
    expect_close(out.kl.get(1), std::exp(0.5) - 1.5);
    const Tensor gradient = run_backward(c, numbers({kNan, 1, kNan, 1}), numbers({kNan, 0, kInfinity, 0}));
    EXPECT_EQ(list_of(gradient), (std::vector<double>{0, std::exp(0.5), 0, 1}));
  }
}

// Conflict 6: with and without clamps, at d = 24.
TEST(CpuRatioKl, K3IsClampedOnlyOnDemand) {
  RatioKlCase c;
  c.logp = numbers({-30});
  c.ref_logp = numbers({-6});
  expect_close(run(c).kl.get(0), std::exp(24.0) - 25);
  expect_close(run_backward(c, zeros(1), ones(1)).get(0), 1 - std::exp(24.0));
  c.options.diff_clamp = 20;
  expect_close(run(c).kl.get(0), std::exp(20.0) - 21);
  EXPECT_EQ(run_backward(c, zeros(1), ones(1)).get(0), 0.0);
  c.options.value_clamp = 10;
  EXPECT_EQ(run(c).kl.get(0), 10.0);
}

TEST(CpuRatioKl, ClampsPassTheGradientAtTheirBoundsAndStopItOutside) {
  RatioKlCase c;
  c.logp = numbers({-20, -20, -20, -20});
  c.old_logp = numbers({-40, -41, 0, 1});
  c.ref_logp = numbers({0, 1, -40, -41});
  c.options = {KlKind::k2, false, 20, 0, 20};
  EXPECT_EQ(list_of(run_backward(c, ones(4), zeros(4))), (std::vector<double>{std::exp(20.0), 0, std::exp(-20.0), 0}));
  EXPECT_EQ(list_of(run_backward(c, zeros(4), ones(4))), (std::vector<double>{-20, 0, 20, 0}));
  c.options = {KlKind::k2, false, 0, 200, 0};  // 20^2 / 2 exactly
  EXPECT_EQ(list_of(run_backward(c, zeros(4), ones(4))), (std::vector<double>{-20, 0, 20, 0}));
}

TEST(CpuRatioKl, WithoutOldLogpTheRatioIsOneAndKeepsItsGradient) {
  RatioKlCase c;
  c.logp = numbers({-3, -700});
  c.ref_logp = numbers({-2, -699});
  EXPECT_EQ(list_of(run(c).ratio), (std::vector<double>{1, 1}));
  EXPECT_EQ(list_of(run_backward(c, numbers({2, -3}), Tensor())), (std::vector<double>{2, -3}));
  // The weight exp(lp - sg(lp)) is 1 too, and its gradient adds the estimate.
  c.options = {KlKind::k1, true};
  EXPECT_EQ(list_of(run(c).kl), (std::vector<double>{-1, -1}));
  EXPECT_EQ(list_of(run_backward(c, zeros(2), ones(2))), (std::vector<double>{0, 0}));  // -1 + 1
}

TEST(CpuRatioKl, K3KeepsItsDigitsNearZeroAndIsInfiniteWhereTheTokenIsImpossible) {
  RatioKlCase c;
  c.logp = numbers({-1e-6, -kInfinity, -1});
  c.ref_logp = numbers({0, -1, -kInfinity});
  const Tensor kl = run(c).kl;
  EXPECT_NEAR(kl.get(0) / 5.0000016666670833e-13, 1, 1e-9);
  EXPECT_EQ(kl.get(1), kInfinity);
  EXPECT_EQ(kl.get(2), kInfinity);
}

TEST(CpuRatioKl, GradientIsTheSlopeOfGolden) {
  const int64_t n_tokens = 9;
  for (int64_t kind = RLK_RATIO_KL_KL_KIND_K1; kind <= RLK_RATIO_KL_KL_KIND_K3; ++kind) {
    for (const bool weighted : {false, true}) {
      for (const double clamp : {0.0, 0.5}) {
        rlk_ratio_kl_params params = RLK_RATIO_KL_PARAMS_INIT;
        params.kl_kind = kind;
        params.kl_weight = weighted ? RLK_RATIO_KL_KL_WEIGHT_RATIO : RLK_RATIO_KL_KL_WEIGHT_NONE;
        params.diff_clamp = params.value_clamp = params.log_ratio_clamp = clamp;
        RatioKlCase c;
        c.logp = random_tensor(Dtype::f64, {n_tokens}, 0.6, 1);
        c.old_logp = random_tensor(Dtype::f64, {n_tokens}, 0.6, 2);
        c.ref_logp = random_tensor(Dtype::f64, {n_tokens}, 0.6, 3);
        c.options = {static_cast<KlKind>(kind), weighted, clamp, clamp, clamp};
        const Tensor grad_ratio = random_tensor(Dtype::f64, {n_tokens}, 1, 4);
        const Tensor grad_kl = random_tensor(Dtype::f64, {n_tokens}, 1, 5);
        const Tensor gradient = run_backward(c, grad_ratio, grad_kl);
        const auto sum_at = [&](double step) {
          Tensor moved = c.logp;
          moved.fill([&](int64_t n) { return c.logp.get(n) + step; });
          const golden::Answer answer = golden_answer("ratio_kl", params, {&moved, &c.old_logp, &c.ref_logp, nullptr});
          std::vector<double> sums;
          for (size_t n = 0; n < static_cast<size_t>(n_tokens); ++n) {
            sums.push_back(grad_ratio.get(static_cast<int64_t>(n)) * answer.outputs[0].value[n] +
                           grad_kl.get(static_cast<int64_t>(n)) * answer.outputs[1].value[n]);
          }
          return sums;
        };
        const std::vector<double> up = sum_at(1e-6), down = sum_at(-1e-6);
        for (size_t n = 0; n < up.size(); ++n) {
          EXPECT_NEAR(gradient.get(static_cast<int64_t>(n)), (up[n] - down[n]) / 2e-6, 1e-7) << "kind " << kind;
        }
      }
    }
  }
}

TEST(CpuRatioKl, BitsDoNotDependOnThreadsOrStrides) {
  for (const Dtype dtype : kFloatDtypes) {
    RatioKlCase c;
    c.logp = random_tensor(dtype, {10007}, 1, 1);
    c.old_logp = random_tensor(dtype, {10007}, 1, 2);
    c.ref_logp = random_tensor(dtype, {10007}, 1, 3);
    const RatioKlOutputs out = run(c);
    const Tensor gradient = run_backward(c, ones(10007), ones(10007));
    for (const cpu::ParallelFor& hook : other_hooks()) {
      EXPECT_EQ(run(c, hook).kl.bytes(), out.kl.bytes());
      EXPECT_EQ(run(c, hook).ratio.bytes(), out.ratio.bytes());
      EXPECT_EQ(run_backward(c, ones(10007), ones(10007), hook).bytes(), gradient.bytes());
    }
    RatioKlCase strided = c;
    strided.logp = numbers(list_of(c.logp), {}, dtype, Strides::reversed);
    strided.ref_logp = numbers(list_of(c.ref_logp), {}, dtype, Strides::gaps);
    EXPECT_EQ(run(strided).kl.bytes(), out.kl.bytes());
  }
}

TEST(CpuRatioKl, NoTokensAreNoWork) {
  RatioKlCase c;
  c.logp = Tensor(Dtype::f32, {0});
  EXPECT_EQ(run(c).ratio.size(), 0);
  EXPECT_EQ(run_backward(c, zeros(0), Tensor()).size(), 0);
}

}  // namespace
}  // namespace rlk::test
