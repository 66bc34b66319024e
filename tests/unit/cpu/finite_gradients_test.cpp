// Gradients where a forward is finite and what it is made of is not, or has no digits left: probabilities of exactly 0
// and 1, and scores up to the largest number of the dtype.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>
#include <rlk/sdk/ops/jsd.hpp>
#include <rlk/sdk/ops/jsd_backward.hpp>
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>
#include <rlk/sdk/ops/preference_loss.hpp>
#include <rlk/sdk/ops/preference_loss_backward.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

double largest(Dtype dtype) {
  return dtype == Dtype::f16 ? 65504 : dtype == Dtype::bf16 ? 0x1.fep127 : std::numeric_limits<float>::max();
}
void expect_bounded(const Tensor& got, double bound, const std::string& what) {
  for (int64_t i = 0; i < got.size(); ++i) EXPECT_LE(std::fabs(got.get(i)), bound) << what << " [" << i << "]";
}

TEST(FiniteGradients, OfOrpoWhereTheChosenSequenceIsCertain) {
  CallOf<ops::PreferenceLoss> c;
  c.chosen_logp = numbers({0, -1e-9, 0}, {3});
  c.rejected_logp = numbers({-0.7, -0.7, -kInfinity}, {3});
  c.pair_loss = wanted();
  c.params.kind = ops::preference_loss::Kind::orpo;
  c.params.beta = 0.5;
  auto backward = sdk::backward_of<CallOf<ops::PreferenceLossBackward>>(c);
  backward.grad_loss = numbers({3}, {1});  // the mean is of three
  const auto got = run(backward);
  const auto right = golden_answer(backward);
  const double odds = std::exp(-0.7) / -std::expm1(-0.7);
  for (const int64_t n : {0, 1}) {
    EXPECT_NEAR(got.grad_chosen_logp.get(n), -0.5 * odds, 1e-8) << n;
    EXPECT_NEAR(right.grad_chosen_logp.value[static_cast<size_t>(n)], -0.5 * odds, 1e-8) << n;
    EXPECT_NEAR(got.grad_rejected_logp.get(n), 0, 1e-8) << n;
  }
  EXPECT_EQ(run(c).pair_loss.get(0), 0);
  EXPECT_EQ(golden_answer(c).pair_loss.value[0], 0);
  EXPECT_EQ(got.grad_chosen_logp.get(2), 0);
}

TEST(FiniteGradients, OfEveryPreferenceWithARejectedSequenceThatIsImpossible) {
  for (int kind = 0; kind < 12; ++kind) {
    CallOf<ops::PreferenceLoss> c;
    c.chosen_logp = numbers({-1}, {1});
    c.rejected_logp = numbers({-kInfinity}, {1});
    c.params.kind = static_cast<ops::preference_loss::Kind>(kind);
    auto backward = sdk::backward_of<CallOf<ops::PreferenceLossBackward>>(c);
    backward.grad_loss = numbers({1}, {1});
    if (!std::isfinite(golden_answer(c).loss.value[0])) continue;
    EXPECT_TRUE(std::isfinite(run(c).loss.get(0))) << kind;
    const auto got = run(backward);
    const auto right = golden_answer(backward);
    EXPECT_TRUE(std::isfinite(got.grad_chosen_logp.get(0))) << kind;
    EXPECT_TRUE(std::isfinite(got.grad_rejected_logp.get(0))) << kind;
    EXPECT_NEAR(got.grad_chosen_logp.get(0), right.grad_chosen_logp.value[0], 1e-12) << kind;
    EXPECT_NEAR(got.grad_rejected_logp.get(0), right.grad_rejected_logp.value[0], 1e-12) << kind;
  }
}

// Two scores at the magnitude, the others about 0.
Tensor scores(Dtype dtype, double magnitude, int64_t rows, int64_t vocab) {
  const Tensor noise = random_tensor(Dtype::f64, {rows, vocab}, 1, 5);
  return Tensor(dtype, {rows, vocab}).fill([&](int64_t i) {
    const int64_t v = i % vocab;
    return v == 3 || v == 7 ? magnitude : v == 9 ? -magnitude : noise.get(i);
  });
}

TEST(FiniteGradients, OfLogProbabilitiesAndDivergencesAtTheLargestScores) {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      for (const double share : {1e-34, 1e-28, 1e-9, 0.4, 1.0}) {
        for (const double temperature : {1.0, 0.7, 3.0}) {
          const double magnitude = std::max(60.0, share * largest(dtype));
          const std::string what = std::to_string(magnitude) + " / " + std::to_string(temperature);
          CallOf<ops::Logp> c;
          c.logits = scores(dtype, magnitude, 3, 37);
          c.ids = integers({3, 5, 9});
          c.lse = c.entropy = wanted();
          c.params.temperature = temperature;
          const auto forward = run(c);
          if (!std::isfinite(forward.lse.get(0))) continue;
          auto backward = sdk::backward_of<CallOf<ops::LogpBackward>>(c);
          backward.lse = forward.lse;
          backward.grad_logp = numbers({1, -1, 0.5}, {3}, Dtype::f32);
          expect_bounded(run(backward).grad_logits, 2.1 / temperature, "logp " + what);
          CallOf<ops::Jsd> d;
          d.logits = c.logits;
          d.teacher_logits = random_tensor(dtype, {3, 37}, 2, 6);
          d.teacher_lse = d.lse = d.student_kl = wanted();
          d.params.temperature = temperature;
          for (const double beta : {0.0, 0.5}) {  // of which none is infinite
            d.params.beta = beta;
            const auto out = run(d);
            if (!std::isfinite(out.loss.get(0))) continue;
            auto of_jsd = sdk::backward_of<CallOf<ops::JsdBackward>>(d);
            of_jsd.lse = out.lse;
            of_jsd.teacher_lse = out.teacher_lse;
            of_jsd.student_kl = out.student_kl;
            of_jsd.grad_loss = numbers({1, 1, 1}, {3}, Dtype::f32);
            expect_bounded(run(of_jsd).grad_logits, 3 / temperature, "jsd " + what);
          }
        }
      }
    }
  });
}

TEST(FiniteGradients, OfAttentionAtTheLargestScoresItsWeightsAreAtMostOne) {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      for (const double magnitude : {8.0, 1e3, 6e4, 1e12, 1e18}) {
        if (magnitude > largest(dtype)) continue;
        CallOf<ops::Attention> c;
        c.q = random_tensor(dtype, {1, 5, 2, 16}, magnitude / 4, 1);
        c.k = random_tensor(dtype, {1, 9, 2, 16}, magnitude / 4, 2);
        c.v = random_tensor(dtype, {1, 9, 2, 16}, 1, 3);
        c.lse = wanted();
        const auto forward = run(c);
        auto backward = sdk::backward_of<CallOf<ops::AttentionBackward>>(c);
        backward.out = forward.out;
        backward.lse = forward.lse;
        backward.grad_out = Tensor(dtype, {1, 5, 2, 16}).fill([](int64_t) { return 1.0; });
        const auto got = run(backward);
        // Five queries of weight 1 at most.
        expect_bounded(got.grad_v, 5.02, "grad_v at " + std::to_string(magnitude));
        for (const Tensor* gradient : {&got.grad_q, &got.grad_k}) {
          for (int64_t i = 0; i < gradient->size(); ++i) {
            EXPECT_TRUE(dtype == Dtype::f16 || std::isfinite(gradient->get(i))) << magnitude;
            EXPECT_FALSE(std::isnan(gradient->get(i))) << magnitude;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace rlk::test
