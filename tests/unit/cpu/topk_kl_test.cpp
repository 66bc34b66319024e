// topk_kl and its backward against verl's formula, the golden reference on every instruction set, finite differences,
// repeated ids, clamps and data errors.
#include <rlk/sdk/ops/topk_kl.hpp>
#include <rlk/sdk/ops/topk_kl_backward.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using TopkKl = CallOf<ops::TopkKl>;
using TopkKlGradient = CallOf<ops::TopkKlBackward>;
using ops::topk_kl_backward::ClampGradient;

TopkKl make_case(Dtype dtype, int64_t rows, int64_t vocab, int64_t k) {
  TopkKl c;
  c.logits = random_tensor(dtype, {rows, vocab}, 2, 1);
  c.ids = Tensor(Dtype::i64, {rows, k});
  for (int64_t i = 0; i < rows * k; ++i) c.ids.set_int(i, (i * 7 + 3) % vocab);
  c.teacher_logp = random_tensor(accumulator(dtype), {rows, k}, 0.7, 2);
  for (int64_t i = 0; i < rows * k; ++i) c.teacher_logp.set(i, c.teacher_logp.get(i) - 3);
  c.lse = c.student_mass = c.teacher_mass = wanted();
  return c;
}
TopkKlGradient backward_of(const TopkKl& c) {
  const auto out = run(c);
  TopkKlGradient backward;
  backward.logits = c.logits;
  backward.ids = c.ids;
  backward.teacher_logp = c.teacher_logp;
  backward.lse = out.lse;
  backward.grad_loss = random_tensor(out.loss.dtype(), {out.loss.size()}, 1, 4);
  backward.mask = c.mask;
  backward.params.temperature = c.params.temperature;
  backward.params.logp_clamp = c.params.logp_clamp;
  return backward;
}

// compute_forward_kl_topk: log_softmax, gather, clamp_min of both, kl_divergence; of one row.
double verl_loss(const TopkKl& c, const Tensor& logits, int64_t n, double log_prob_min_clamp) {
  const int64_t vocab = logits.shape()[1], k_tokens = c.ids.shape()[1];
  double sum = 0, loss = 0;
  for (int64_t v = 0; v < vocab; ++v) sum += std::exp(logits.get(n * vocab + v) / c.params.temperature);
  for (int64_t k = 0; k < k_tokens; ++k) {
    const int64_t id = c.ids.get_int(n * k_tokens + k);
    const double student = logits.get(n * vocab + id) / c.params.temperature - std::log(sum);
    const double log_q = std::max(student, log_prob_min_clamp);
    const double log_p = std::max(c.teacher_logp.get(n * k_tokens + k), log_prob_min_clamp);
    loss += std::exp(log_p) * (log_p - log_q);
  }
  return loss;
}

TEST(CpuTopkKl, IsVerlsForwardKlAndItsGradient) {
  for (const double clamp : {0.0, 3.5}) {
    TopkKl c = make_case(Dtype::f64, 4, 23, 5);
    c.mask = flags({1, 1, 0, 1});
    c.ids.set_int(1, c.ids.get_int(0));  // a token twice
    c.params.temperature = 0.8;
    c.params.logp_clamp = clamp;
    const double least = clamp > 0 ? -clamp : -kInfinity;
    const auto got = run(c);
    const TopkKlGradient backward = backward_of(c);
    const Tensor gradient = run(backward).grad_logits;
    const auto golden = golden_answer(c);
    const auto golden_gradient = golden_answer(backward).grad_logits;
    for (int64_t n = 0; n < 4; ++n) {
      const bool kept = c.mask.get_int(n) != 0;
      const double want = kept ? verl_loss(c, c.logits, n, least) : 0.0;
      EXPECT_NEAR(got.loss.get(n), want, 1e-13);
      EXPECT_NEAR(golden.loss.value[static_cast<size_t>(n)], want, 1e-13);
      EXPECT_NEAR(golden.student_mass.value[static_cast<size_t>(n)], got.student_mass.get(n), 1e-14);
      double mass = 0;
      for (int64_t k = 0; k < 5 && kept; ++k) mass += std::exp(c.teacher_logp.get(n * 5 + k));
      EXPECT_NEAR(got.teacher_mass.get(n), mass, 1e-14);
      for (int64_t v = 0; v < 23; ++v) {
        const int64_t i = n * 23 + v;
        double slope = 0;
        if (kept) {
          Tensor above = c.logits, below = c.logits;
          above.set(i, c.logits.get(i) + 1e-5);
          below.set(i, c.logits.get(i) - 1e-5);
          slope = backward.grad_loss.get(n) * (verl_loss(c, above, n, least) - verl_loss(c, below, n, least)) / 2e-5;
        }
        EXPECT_NEAR(gradient.get(i), slope, 1e-9);
        EXPECT_NEAR(golden_gradient.value[static_cast<size_t>(i)], gradient.get(i), 1e-14);
      }
    }
  }
}

TEST(CpuTopkKl, MatchesGoldenOnEveryInstructionSetAndBitsDoNotDependOnThreads) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const auto& [rows, vocab] : std::vector<std::pair<int64_t, int64_t>>{{5, 37}, {2, 5000}, {1, 1}, {0, 9}}) {
        const TopkKl c = make_case(dtype, rows, vocab, 6);
        const auto expected = golden_answer(c);
        const auto out = run(c);
        EXPECT_TRUE(matches(out.loss, expected.loss, dtype));
        EXPECT_TRUE(matches(out.student_mass, expected.student_mass, dtype));
        const TopkKlGradient backward = backward_of(c);
        const Tensor gradient = run(backward).grad_logits;
        EXPECT_TRUE(matches(gradient, golden_answer(backward).grad_logits, dtype));
        for (const cpu::ParallelFor& hook : other_hooks()) {
          EXPECT_EQ(run(c, hook).loss.bytes(), out.loss.bytes());
          EXPECT_EQ(run(backward, hook).grad_logits.bytes(), gradient.bytes());
        }
      }
    }
  });
}

// 2 - 3 is a log-probability of -1 exactly, which is the clamp.
TEST(CpuTopkKl, TheClampPassesWhatIsAskedForAtItsBound) {
  TopkKlGradient call;
  call.logits = Tensor(Dtype::f64, {1, 4}).fill([](int64_t) { return 2.0; });
  call.ids = Tensor(Dtype::i64, {1, 1}).set_int(0, 2);
  call.teacher_logp = numbers({-0.5}, {1, 1});
  call.lse = numbers({3});
  call.grad_loss = numbers({1});
  call.params.logp_clamp = 1;
  const std::pair<ClampGradient, double> rules[] = {
      {ClampGradient::zero, 0}, {ClampGradient::half, 0.5}, {ClampGradient::pass, 1}};
  EXPECT_EQ(call.params.clamp_gradient, ClampGradient::zero);  // the default
  for (const auto& [rule, passes] : rules) {
    call.params.clamp_gradient = rule;
    const Tensor got = run(call).grad_logits;
    const auto golden = golden_answer(call).grad_logits;
    for (int64_t v = 0; v < 4; ++v) {
      EXPECT_NEAR(got.get(v), passes * std::exp(-0.5) * (std::exp(-1.0) - (v == 2 ? 1 : 0)), 1e-14);
      EXPECT_NEAR(golden.value[static_cast<size_t>(v)], got.get(v), 1e-15);
    }
  }
}

TEST(CpuTopkKl, ANanOfTheTeacherMakesItsRowNanAlsoWhereTheStudentIsClamped) {
  TopkKlGradient call;
  call.logits = Tensor(Dtype::f64, {1, 4}).fill([](int64_t) { return 2.0; });
  call.ids = Tensor(Dtype::i64, {1, 1}).set_int(0, 2);
  call.teacher_logp = numbers({kNan}, {1, 1});
  call.lse = numbers({5});
  call.grad_loss = numbers({1});
  call.params.logp_clamp = 1;
  const Tensor got = run(call).grad_logits;
  const auto golden = golden_answer(call).grad_logits;
  for (int64_t v = 0; v < 4; ++v) {
    EXPECT_TRUE(std::isnan(got.get(v))) << v;
    EXPECT_TRUE(std::isnan(golden.value[static_cast<size_t>(v)])) << v;
  }
}

TEST(CpuTopkKl, ActiveIdsOutOfRangeAreDataErrorsAndMaskedOnesAreNotLookedUp) {
  TopkKl c = make_case(Dtype::f32, 5, 11, 3);
  TopkKlGradient backward = backward_of(c);
  c.mask = backward.mask = flags({1, 0, 1, 1, 1});
  c.ids.set_int(3, std::numeric_limits<int64_t>::min());
  backward.ids = c.ids;
  EXPECT_EQ(run(c).error.kind, cpu::kNoDataError);
  EXPECT_EQ(run(backward).error.kind, cpu::kNoDataError);
  backward.ids = c.ids.set_int(7, 11).set_int(12, -1);
  for (int64_t v = 0; v < 11; ++v) {
    c.logits.set(3 * 11 + v, -kInfinity);
    backward.logits.set(3 * 11 + v, -kInfinity);
  }
  const auto out = run(c);
  const auto result = run(backward);
  for (const cpu::DataError& error : {out.error, result.error}) {
    EXPECT_EQ(error.kind, cpu::kIdOutOfRange);
    EXPECT_EQ(error.row, 2);
    EXPECT_EQ(error.value, 11);
  }
  EXPECT_EQ(golden_answer(c).error.row, 2);
  for (int64_t n = 0; n < 5; ++n) {
    EXPECT_EQ(std::isnan(out.loss.get(n)), n >= 2);
    EXPECT_EQ(std::isnan(result.grad_logits.get(n * 11)), n >= 2);
  }
  EXPECT_EQ(out.loss.get(1), 0);
  EXPECT_EQ(result.grad_logits.get(11), 0);
}

TEST(CpuTopkKl, TokensThatATeacherRulesOutCountNothing) {
  TopkKl c = make_case(Dtype::f64, 1, 9, 2);
  const double alone = [&] {
    TopkKl one = make_case(Dtype::f64, 1, 9, 1);
    one.teacher_logp.set(0, c.teacher_logp.get(0));
    return run(one).loss.get(0);
  }();
  c.teacher_logp.set(1, -kInfinity);
  EXPECT_EQ(run(c).loss.get(0), alone);
  EXPECT_EQ(golden_answer(c).loss.value[0], alone);
}

}  // namespace
}  // namespace rlk::test
