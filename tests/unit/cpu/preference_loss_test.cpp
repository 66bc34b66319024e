// preference_loss and its backward against TRL's and Liger-Kernel's formulas, as they write them.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/preference_loss.hpp>
#include <rlk/sdk/ops/preference_loss_backward.hpp>

#include <cmath>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using PreferenceLoss = CallOf<ops::PreferenceLoss>;
using ops::preference_loss::Kind, ops::preference_loss::Params, ops::preference_loss::Reduction;
constexpr int64_t kPairs = 6;

Tensor logps(int64_t count, uint32_t seed) {
  const Tensor random = random_tensor(Dtype::f64, {count}, 1, seed);
  return Tensor(Dtype::f64, {count}).fill([&](int64_t i) { return -0.05 - 2 * std::fabs(random.get(i)); });
}
PreferenceLoss make_case(bool reference, Params params) {
  PreferenceLoss c;
  c.chosen_logp = logps(kPairs, 1);
  c.rejected_logp = logps(kPairs, 2);
  if (reference) c.ref_chosen_logp = logps(kPairs, 3);
  if (reference) c.ref_rejected_logp = logps(kPairs, 4);
  c.params = params;
  c.pair_loss = c.rejected_loss = c.chosen_reward = c.rejected_reward = wanted();
  return c;
}

Dual sigmoid(Dual x) {
  return Dual(1) / (Dual(1) + exp(-x));
}
Dual logsigmoid(Dual x) {
  return log(sigmoid(x));
}

// What the trainers' losses are given.
struct Given {
  Dual c, r, ref_c, ref_r;
  Dual ratio_c() const { return c - ref_c; }
  Dual ratio_r() const { return r - ref_r; }
  Dual delta() const { return ratio_c() - ratio_r(); }
};
using Published = Dual (*)(const Given&, const Params&);

// DPOTrainer's loss types; dpo_loss of Liger-Kernel has the same but for ipo.
Dual dpo_sigmoid(const Given& g, const Params& p) {  // with cDPO's label smoothing
  const Dual z = Dual(p.beta) * g.delta();
  return -logsigmoid(z) * (1 - p.label_smoothing) - logsigmoid(-z) * p.label_smoothing;
}
Dual dpo_hinge(const Given& g, const Params& p) {
  return max(Dual(1) - Dual(p.beta) * g.delta(), 0);
}
Dual dpo_ipo(const Given& g, const Params& p) {
  const Dual off = g.delta() - 1 / (2 * p.beta);
  return off * off;
}
Dual dpo_exo_pair(const Given& g, const Params& p) {
  const Dual z = Dual(p.beta) * g.delta();
  const double log_pw = std::log1p(-p.exo_epsilon), log_pl = std::log(p.exo_epsilon);
  return sigmoid(z) * (logsigmoid(z) - log_pw) + sigmoid(-z) * (logsigmoid(-z) - log_pl);
}
Dual dpo_nca_pair(const Given& g, const Params& p) {
  const Dual chosen = Dual(p.beta) * g.ratio_c(), rejected = Dual(p.beta) * g.ratio_r();
  return -logsigmoid(chosen) - Dual(0.5) * logsigmoid(-chosen) - Dual(0.5) * logsigmoid(-rejected);
}
Dual dpo_robust(const Given& g, const Params& p) {
  const Dual z = Dual(p.beta) * g.delta();
  const Dual clean = Dual(p.label_smoothing - 1) * logsigmoid(z), flipped = Dual(-p.label_smoothing) * logsigmoid(-z);
  return (clean - flipped) / (1 - 2 * p.label_smoothing);
}
Dual dpo_bco_pair(const Given& g, const Params& p) {
  return -logsigmoid(Dual(p.beta) * g.ratio_c()) - logsigmoid(-(Dual(p.beta) * g.ratio_r()));
}
Dual dpo_sppo_hard(const Given& g, const Params& p) {
  const Dual winner = g.ratio_c() - 0.5 / p.beta, loser = g.ratio_r() + 0.5 / p.beta;
  return winner * winner + loser * loser;
}
Dual dpo_apo_zero(const Given& g, const Params& p) {
  return Dual(1) - sigmoid(Dual(p.beta) * g.ratio_c()) + sigmoid(Dual(p.beta) * g.ratio_r());
}
Dual dpo_apo_down(const Given& g, const Params& p) {
  return sigmoid(Dual(p.beta) * g.ratio_c()) + Dual(1) - sigmoid(Dual(p.beta) * g.delta());
}
Dual dpo_discopop(const Given& g, const Params& p) {
  const Dual z = Dual(p.beta) * g.delta(), modulation = sigmoid(z / p.discopop_tau);
  return -logsigmoid(z) * (Dual(1) - modulation) + exp(-z) * modulation;
}
// CPOTrainer, cpo_loss: no reference; with SimPO's margin.
Dual simpo(const Given& g, const Params& p) {
  const Dual z = Dual(p.beta) * (g.c - g.r) - p.margin;
  return -logsigmoid(z) * (1 - p.label_smoothing) - logsigmoid(-z) * p.label_smoothing;
}
// odds_ratio_loss of ORPOTrainer, orpo_loss.
Dual orpo(const Given& g, const Params& p) {
  const Dual odds = (g.c - g.r) - (log(Dual(1) - exp(g.c)) - log(Dual(1) - exp(g.r)));
  return Dual(-p.beta) * logsigmoid(odds);
}

TEST(CpuPreferenceLoss, IsTheTrainersFormulaOfEveryKindAndItsGradient) {
  struct Trainer {
    const char* name;
    Published loss;
    bool reference;
    Params params;
  };
  const Trainer trainers[] = {
      {"DPO", dpo_sigmoid, true, {}},
      {"cDPO", dpo_sigmoid, true, {.label_smoothing = 0.2}},
      {"hinge", dpo_hinge, true, {.kind = Kind::hinge, .beta = 0.7}},
      {"ipo", dpo_ipo, true, {.kind = Kind::ipo}},
      {"exo_pair", dpo_exo_pair, true, {.kind = Kind::exo_pair, .exo_epsilon = 0.05}},
      {"nca_pair", dpo_nca_pair, true, {.kind = Kind::nca_pair}},
      {"robust", dpo_robust, true, {.kind = Kind::robust, .label_smoothing = 0.2}},
      {"bco_pair", dpo_bco_pair, true, {.kind = Kind::bco_pair}},
      {"sppo_hard", dpo_sppo_hard, true, {.kind = Kind::sppo_hard}},
      {"apo_zero", dpo_apo_zero, true, {.kind = Kind::apo_zero}},
      {"apo_down", dpo_apo_down, true, {.kind = Kind::apo_down}},
      {"discopop", dpo_discopop, true, {.kind = Kind::discopop}},
      {"CPO", simpo, false, {.label_smoothing = 0.1}},
      {"SimPO", simpo, false, {.beta = 2, .margin = 0.5}},
      {"ORPO", orpo, false, {.kind = Kind::orpo}},
  };
  for (const Trainer& trainer : trainers) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      SCOPED_TRACE(trainer.name);
      PreferenceLoss c = make_case(trainer.reference, trainer.params);
      c.params.reduction = reduction;
      const auto got = run(c);
      auto backward = sdk::backward_of<CallOf<ops::PreferenceLossBackward>>(c);
      backward.grad_loss = numbers({1.5});
      const auto gradients = run(backward);
      const double divisor = reduction == Reduction::mean ? kPairs : 1;
      double sum = 0;
      for (int64_t n = 0; n < kPairs; ++n) {
        const auto at = [n](const Tensor& t) { return t.present() ? t.get(n) : 0.0; };
        Given g{at(c.chosen_logp), at(c.rejected_logp), at(c.ref_chosen_logp), at(c.ref_rejected_logp)};
        const double value = trainer.loss(g, c.params).v;
        EXPECT_NEAR(got.pair_loss.get(n), value, 1e-13 * (1 + std::fabs(value)));
        EXPECT_EQ(got.rejected_loss.get(n), 0);
        EXPECT_NEAR(got.chosen_reward.get(n), c.params.beta * g.ratio_c().v, 1e-15);
        EXPECT_NEAR(got.rejected_reward.get(n), c.params.beta * g.ratio_r().v, 1e-15);
        sum += value;
        g.c.d = 1;
        EXPECT_NEAR(gradients.grad_chosen_logp.get(n), trainer.loss(g, c.params).d * 1.5 / divisor, 1e-12);
        g.c.d = 0;
        g.r.d = 1;
        EXPECT_NEAR(gradients.grad_rejected_logp.get(n), trainer.loss(g, c.params).d * 1.5 / divisor, 1e-12);
      }
      EXPECT_NEAR(got.loss.get(0), sum / divisor, 1e-13 * (1 + std::fabs(sum)));
    }
  }
}

// kto_loss of TRL and Liger-Kernel: the mean over all sequences, of which there are not as many of either kind.
TEST(CpuPreferenceLoss, KtoIsTheMeanOverUnpairedSequences) {
  PreferenceLoss c = make_case(false, {.kind = Kind::kto, .desirable_weight = 1.5, .undesirable_weight = 0.5});
  c.rejected_logp = logps(2, 2);
  c.ref_chosen_logp = logps(kPairs, 3);
  c.ref_rejected_logp = logps(2, 4);
  const double kl = 0.3, beta = c.params.beta;
  c.kl = numbers({kl});
  const auto got = run(c);
  auto backward = sdk::backward_of<CallOf<ops::PreferenceLossBackward>>(c);
  backward.grad_loss = numbers({1});
  const auto gradients = run(backward);
  double sum = 0;
  for (int64_t n = 0; n < kPairs; ++n) {
    const Dual ratio = variable(c.chosen_logp.get(n)) - c.ref_chosen_logp.get(n);
    const Dual loss = Dual(1.5) * (Dual(1) - sigmoid(Dual(beta) * (ratio - kl)));
    EXPECT_NEAR(got.pair_loss.get(n), loss.v, 1e-15);
    EXPECT_NEAR(gradients.grad_chosen_logp.get(n), loss.d / 8, 1e-15);
    sum += loss.v;
  }
  for (int64_t m = 0; m < 2; ++m) {
    const Dual ratio = variable(c.rejected_logp.get(m)) - c.ref_rejected_logp.get(m);
    const Dual loss = Dual(0.5) * (Dual(1) - sigmoid(Dual(beta) * (Dual(kl) - ratio)));
    EXPECT_NEAR(got.rejected_loss.get(m), loss.v, 1e-15);
    EXPECT_NEAR(gradients.grad_rejected_logp.get(m), loss.d / 8, 1e-15);
    sum += loss.v;
  }
  EXPECT_NEAR(got.loss.get(0), sum / 8, 1e-15);
}

// Sequences are dealt out in stretches of 128; their losses are added in one order.
TEST(CpuPreferenceLoss, ManySequencesHaveTheNumbersOfGoldenAndTheBitsOfOneThread) {
  for (const Kind kind : {Kind::sigmoid, Kind::kto}) {
    PreferenceLoss c = make_case(true, {.kind = kind});
    const int64_t rejected = kind == Kind::kto ? 300 : 1000;
    c.chosen_logp = logps(1000, 1);
    c.ref_chosen_logp = logps(1000, 3);
    c.rejected_logp = logps(rejected, 2);
    c.ref_rejected_logp = logps(rejected, 4);
    const auto got = run(c);
    const auto golden = golden_answer(c);
    auto backward = sdk::backward_of<CallOf<ops::PreferenceLossBackward>>(c);
    backward.grad_loss = numbers({1.5});
    const auto gradients = run(backward);
    const auto golden_gradients = golden_answer(backward);
    EXPECT_TRUE(matches(got.loss, golden.loss, Dtype::f64));
    EXPECT_TRUE(matches(got.pair_loss, golden.pair_loss, Dtype::f64));
    EXPECT_TRUE(matches(got.rejected_loss, golden.rejected_loss, Dtype::f64));
    EXPECT_TRUE(matches(gradients.grad_chosen_logp, golden_gradients.grad_chosen_logp, Dtype::f64));
    EXPECT_TRUE(matches(gradients.grad_rejected_logp, golden_gradients.grad_rejected_logp, Dtype::f64));
    for (const cpu::ParallelFor& hook : other_hooks()) {
      EXPECT_EQ(run(c, hook).loss.bytes(), got.loss.bytes());
      EXPECT_EQ(run(backward, hook).grad_rejected_logp.bytes(), gradients.grad_rejected_logp.bytes());
    }
  }
}

// z is 0.5, 1 and 1.5: the margin ends at 1, and has no slope there.
TEST(CpuPreferenceLoss, HingeIsZeroAndFlatFromOneOn) {
  PreferenceLoss c;
  c.chosen_logp = numbers({-1, -1, -0.5});
  c.rejected_logp = numbers({-1.25, -1.5, -1.25});
  c.params = {.kind = Kind::hinge, .beta = 2};
  c.pair_loss = wanted();
  EXPECT_EQ(list_of(run(c).pair_loss), (List{0.5, 0, 0}));
  auto backward = sdk::backward_of<CallOf<ops::PreferenceLossBackward>>(c);
  backward.grad_loss = numbers({3});
  const auto gradients = run(backward);
  EXPECT_EQ(list_of(gradients.grad_chosen_logp), (List{-2, 0, 0}));
  EXPECT_EQ(list_of(gradients.grad_rejected_logp), (List{2, 0, 0}));
}

TEST(CpuPreferenceLoss, ADenominatorOfOneOrLessTakesThePlaceOfTheNaturalOne) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    for (const double denominator : {0.5, 1.0}) {
      PreferenceLoss c = make_case(false, {.kind = Kind::ipo});
      c.params.reduction = Reduction::sum;
      const double sum = run(c).loss.get(0);
      const auto gradient_of = [](const PreferenceLoss& of) {
        auto backward = sdk::backward_of<CallOf<ops::PreferenceLossBackward>>(of);
        backward.grad_loss = numbers({1});
        return run(backward).grad_chosen_logp.get(0);
      };
      const double of_sum = gradient_of(c);
      c.params.reduction = reduction;
      c.params.denominator = denominator;
      EXPECT_EQ(run(c).loss.get(0), sum / denominator);
      EXPECT_EQ(gradient_of(c), of_sum / denominator);
    }
  }
}

// exp(-z) and 1 / (1 + exp(-z)) leave their ranges here; the losses do not.
TEST(CpuPreferenceLoss, LargeDifferencesAreLinearAndNeverInfinite) {
  PreferenceLoss c = make_case(false, {.beta = 1});
  c.chosen_logp = numbers({-2000, -1}, {2}, Dtype::f32);
  c.rejected_logp = numbers({-1, -2000}, {2}, Dtype::f32);
  const auto got = run(c);
  EXPECT_EQ(got.pair_loss.get(0), 1999);
  EXPECT_EQ(got.pair_loss.get(1), 0);
}

// Where the policy's outcomes are nearly those that it is to have: S(z) = 1 - e.
TEST(CpuPreferenceLoss, TheDivergenceOfExoIsRightAndNeverNegative) {
  for (const double e : {0.5, 0.25, 1e-3}) {
    for (const double move : {0.0, 1e-12, -1e-9, 1e-6, -1e-3, 0.1}) {
      PreferenceLoss c;
      c.chosen_logp = numbers({std::log((1 - e) / e) + move - 1});
      c.rejected_logp = numbers({-1});
      c.pair_loss = wanted();
      c.params.kind = Kind::exo_pair;
      c.params.beta = 1;
      c.params.exo_epsilon = e;
      const double got = run(c).pair_loss.get(0), right = golden_answer(c).pair_loss.value[0];
      EXPECT_GE(got, 0) << e << " " << move;
      EXPECT_GE(right, 0) << e << " " << move;
      if (std::fabs(move) < 1e-6) continue;
      const long double z = static_cast<long double>(c.chosen_logp.get(0)) + 1, win = 1 / (1 + std::exp(-z));
      const auto wide = static_cast<long double>(e);
      const auto exact = static_cast<double>(win * std::log(win / (1 - wide)) + (1 - win) * std::log((1 - win) / wide));
      EXPECT_NEAR(got / exact, 1, 1e-4) << e << " " << move;
      EXPECT_NEAR(right / exact, 1, 1e-4) << e << " " << move;
    }
  }
}

}  // namespace
}  // namespace rlk::test
