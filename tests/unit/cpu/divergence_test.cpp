// kl_div, tvd and their backwards against torch's and Liger-Kernel's formulas, and at their edges.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/kl_div.hpp>
#include <rlk/sdk/ops/kl_div_backward.hpp>
#include <rlk/sdk/ops/tvd.hpp>
#include <rlk/sdk/ops/tvd_backward.hpp>

#include <cmath>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using KlDiv = CallOf<ops::KlDiv>;
using Tvd = CallOf<ops::Tvd>;
constexpr int64_t kPairs = 3, kOutcomes = 5;

template <class Call>
Call make_case() {
  Call c;
  c.input = random_tensor(Dtype::f64, {kPairs, kOutcomes}, 1, 1);
  c.target =
      Tensor(Dtype::f64, {kPairs, kOutcomes}).fill([](int64_t i) { return 0.05 + 0.06 * static_cast<double>(i); });
  c.mask = flags({1, 0, 1});
  c.element_loss = wanted();
  return c;
}

// The divisors of torch, with the rows that count (Liger-Kernel's n_non_ignore).
template <class Call>
double divisor(const Call& c) {
  using Kind = decltype(c.params.reduction);
  const double rows = 2;
  return c.params.reduction == Kind::batchmean ? rows : c.params.reduction == Kind::mean ? rows * kOutcomes : 1;
}

// Checks values and gradients of both inputs. term(input, target) is the published formula of an element.
template <class Backward, class Call, class Term>
void check(const Call& c, const Term& term) {
  auto backward = sdk::backward_of<CallOf<Backward>>(c);
  backward.grad_loss = numbers({1.5});
  backward.grad_target = wanted();
  const auto got = run(c);
  const auto gradients = run(backward);
  double sum = 0;
  for (int64_t i = 0; i < kPairs * kOutcomes; ++i) {
    const bool kept = c.mask.get_int(i / kOutcomes) != 0;
    const double x = c.input.get(i), t = c.target.get(i), scale = kept ? 1.5 / divisor(c) : 0;
    const double value = kept ? term(Dual(x), Dual(t)).v : 0;
    sum += value;
    EXPECT_NEAR(got.element_loss.get(i), value, 1e-15);
    EXPECT_NEAR(gradients.grad_input.get(i), term(variable(x), Dual(t)).d * scale, 1e-15);
    EXPECT_NEAR(gradients.grad_target.get(i), term(Dual(x), variable(t)).d * scale, 1e-14);
  }
  EXPECT_NEAR(got.loss.get(0), sum / divisor(c), 1e-14);
}

TEST(CpuKlDiv, IsTorchsAndLigersFormulaWithEveryReduction) {
  using ops::kl_div::LogTarget, ops::kl_div::Reduction;
  for (const Reduction reduction : {Reduction::batchmean, Reduction::mean, Reduction::sum}) {
    KlDiv c = make_case<KlDiv>();
    c.params.reduction = reduction;
    check<ops::KlDivBackward>(c, [](Dual x, Dual t) { return t * (log(t) - x); });
    c.params.eps = 1e-10;  // Liger-Kernel's
    check<ops::KlDivBackward>(c, [](Dual x, Dual t) { return t * (log(max(t, 1e-10)) - x); });
    c.params.eps = 0.3;
    check<ops::KlDivBackward>(c, [](Dual x, Dual t) { return t * log(max(t, 0.3)) - t * x; });
    c.params.log_target = LogTarget::on;
    check<ops::KlDivBackward>(c, [](Dual x, Dual t) { return exp(t) * (t - x); });
  }
}

TEST(CpuTvd, IsLigersFormulaWithEveryReduction) {
  using ops::tvd::Reduction;
  for (const Reduction reduction : {Reduction::batchmean, Reduction::mean, Reduction::sum}) {
    Tvd c = make_case<Tvd>();
    c.params.reduction = reduction;
    check<ops::TvdBackward>(c, [](Dual p, Dual q) { return Dual(0.5) * abs(p - q); });
  }
}

TEST(CpuKlDiv, ATargetOfZeroCostsNothingAndAnImpossibleTokenInfinitelyMuch) {
  KlDiv c;
  c.input = numbers({-kInfinity, 0, -1, -kInfinity}, {2, 2});
  c.target = numbers({0, 1, 0.5, 0.5}, {2, 2});
  c.element_loss = wanted();
  EXPECT_EQ(run(c).element_loss.get(0), 0);
  EXPECT_EQ(run(c).element_loss.get(3), kInfinity);
  auto backward = sdk::backward_of<CallOf<ops::KlDivBackward>>(c);
  backward.grad_loss = numbers({1});
  backward.grad_target = wanted();
  const auto got = run(backward);
  EXPECT_EQ(list_of(got.grad_input), (List{0, -0.5, -0.25, -0.25}));
  EXPECT_EQ(got.grad_target.get(0), 0);
}

// A target of exp(-inf), and negative ones, are a probability of 0.
TEST(CpuKlDiv, ATargetOfNoProbabilityCostsNothing) {
  using ops::kl_div::LogTarget;
  for (const LogTarget log_target : {LogTarget::off, LogTarget::on}) {
    KlDiv c;
    c.params.log_target = log_target;
    c.input = numbers({-1, -kInfinity}, {1, 2});
    const double none = log_target == LogTarget::on ? -kInfinity : -0.5;
    c.target = numbers({none, none}, {1, 2});
    c.element_loss = wanted();
    EXPECT_EQ(list_of(run(c).element_loss), (List{0, 0}));
    EXPECT_EQ(run(c).loss.get(0), 0);
    auto backward = sdk::backward_of<CallOf<ops::KlDivBackward>>(c);
    backward.grad_loss = numbers({1});
    backward.grad_target = wanted();
    const auto got = run(backward);
    EXPECT_EQ(list_of(got.grad_input), (List{0, 0}));
    EXPECT_EQ(list_of(got.grad_target), (List{0, 0}));
  }
}

// Also one below 1.
template <class Call>
void expect_denominators(Call c) {
  c.params.reduction = decltype(c.params.reduction)::sum;
  const double sum = run(c).loss.get(0);
  for (const double denominator : {0.25, 1.0, 4.0}) {
    for (const auto reduction : {decltype(c.params.reduction)::batchmean, decltype(c.params.reduction)::sum}) {
      c.params.reduction = reduction;
      c.params.denominator = denominator;
      EXPECT_DOUBLE_EQ(run(c).loss.get(0), sum / denominator);
    }
  }
}

TEST(CpuKlDiv, ADenominatorReplacesTheNaturalOne) {
  expect_denominators(make_case<KlDiv>());
}

TEST(CpuTvd, ADenominatorReplacesTheNaturalOne) {
  expect_denominators(make_case<Tvd>());
}

TEST(CpuTvd, OppositeInfinitiesHaveAGradient) {
  Tvd c;
  c.input = numbers({kInfinity, -kInfinity}, {1, 2});
  c.target = numbers({-kInfinity, kInfinity}, {1, 2});
  auto backward = sdk::backward_of<CallOf<ops::TvdBackward>>(c);
  backward.grad_loss = numbers({1});
  backward.grad_target = wanted();
  const auto got = run(backward);
  EXPECT_EQ(list_of(got.grad_input), (List{0.5, -0.5}));
  EXPECT_EQ(list_of(got.grad_target), (List{-0.5, 0.5}));
}

TEST(CpuTvd, EqualProbabilitiesHaveNoGradient) {
  Tvd c;
  c.input = numbers({0.5, 0.25}, {1, 2});
  c.target = numbers({0.5, 0.75}, {1, 2});
  auto backward = sdk::backward_of<CallOf<ops::TvdBackward>>(c);
  backward.grad_loss = numbers({1});
  EXPECT_EQ(list_of(run(backward).grad_input), (List{0, -0.5}));
}

// With reduction none the terms are the result, and only their gradients count.
TEST(CpuKlDiv, ReductionNoneGivesTheTerms) {
  KlDiv c = make_case<KlDiv>();
  c.params.reduction = ops::kl_div::Reduction::none;
  EXPECT_EQ(run(c).loss.get(0), 0);
  auto backward = sdk::backward_of<CallOf<ops::KlDivBackward>>(c);
  backward.grad_loss = numbers({std::nan("")});
  backward.grad_element_loss = random_tensor(Dtype::f64, {kPairs, kOutcomes}, 1, 2);
  const Tensor gradient = run(backward).grad_input;
  for (int64_t i = 0; i < kOutcomes; ++i) {
    EXPECT_EQ(gradient.get(i), -c.target.get(i) * backward.grad_element_loss.get(i));
  }
}

}  // namespace
}  // namespace rlk::test
