// jsd and its backward against the trainers' own formulas, the golden reference on every instruction set, finite
// differences, impossible tokens and data errors.
#include <rlk/sdk/ops/jsd.hpp>
#include <rlk/sdk/ops/jsd_backward.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Jsd = CallOf<ops::Jsd>;
using JsdGradient = CallOf<ops::JsdBackward>;
constexpr double kBetas[] = {0, 0.1, 0.5, 1};

Jsd make_case(Dtype dtype, int64_t rows, int64_t vocab) {
  Jsd c;
  c.logits = random_tensor(dtype, {rows, vocab}, 2, 1);
  c.teacher_logits = random_tensor(dtype, {rows, vocab}, 2, 2);
  c.lse = c.teacher_lse = c.student_kl = wanted();
  return c;
}
JsdGradient backward_of(const Jsd& c) {
  const auto out = run(c);
  JsdGradient backward;
  backward.logits = c.logits;
  backward.teacher_logits = c.teacher_logits;
  backward.lse = out.lse;
  backward.teacher_lse = out.teacher_lse;
  backward.student_kl = out.student_kl;
  backward.grad_loss = random_tensor(out.loss.dtype(), {out.loss.size()}, 1, 4);
  backward.mask = c.mask;
  backward.params.beta = c.params.beta;
  backward.params.temperature = c.params.temperature;
  return backward;
}

std::vector<double> log_softmax(const Tensor& logits, int64_t row, int64_t vocab, double temperature) {
  std::vector<double> z;
  double sum = 0;
  for (int64_t v = 0; v < vocab; ++v) z.push_back(logits.get(row * vocab + v) / temperature);
  for (const double score : z) sum += std::exp(score);
  for (double& score : z) score -= std::log(sum);
  return z;
}
// F.kl_div(log_input, log_target, log_target=True), summed.
double kl_div(const std::vector<double>& log_input, const std::vector<double>& log_target) {
  double sum = 0;
  for (size_t v = 0; v < log_input.size(); ++v) sum += std::exp(log_target[v]) * (log_target[v] - log_input[v]);
  return sum;
}
// distillation_loss_fn of Liger's LigerFusedLinearJSDFunction, generalised JSD of TRL; of one row.
double generalized_jsd(const std::vector<double>& student, const std::vector<double>& teacher, double beta) {
  if (beta == 0) return kl_div(student, teacher);
  if (beta == 1) return kl_div(teacher, student);
  std::vector<double> mean;
  for (size_t v = 0; v < student.size(); ++v) {
    mean.push_back(std::log(std::exp(student[v] + std::log(1 - beta)) + std::exp(teacher[v] + std::log(beta))));
  }
  return beta * kl_div(mean, teacher) + (1 - beta) * kl_div(mean, student);
}

TEST(CpuJsd, IsTheTrainersGeneralisedDivergenceAndItsGradient) {
  for (const double beta : kBetas) {
    Jsd c = make_case(Dtype::f64, 4, 23);
    c.mask = flags({1, 1, 0, 1});
    c.params.beta = beta;
    c.params.temperature = 0.8;
    const auto loss_of = [&](const Tensor& logits, int64_t n) {
      return generalized_jsd(log_softmax(logits, n, 23, 0.8), log_softmax(c.teacher_logits, n, 23, 0.8), beta);
    };
    const auto got = run(c);
    const JsdGradient backward = backward_of(c);
    const Tensor gradient = run(backward).grad_logits;
    const auto golden = golden_answer(c);
    const auto golden_gradient = golden_answer(backward).grad_logits;
    for (int64_t n = 0; n < 4; ++n) {
      const bool kept = c.mask.get_int(n) != 0;
      const double want = kept ? loss_of(c.logits, n) : 0.0;
      EXPECT_NEAR(got.loss.get(n), want, 1e-13);
      EXPECT_NEAR(golden.loss.value[static_cast<size_t>(n)], want, 1e-13);
      for (int64_t v = 0; v < 23; ++v) {
        const int64_t i = n * 23 + v;
        double slope = 0;
        if (kept) {
          Tensor above = c.logits, below = c.logits;
          above.set(i, c.logits.get(i) + 1e-5);
          below.set(i, c.logits.get(i) - 1e-5);
          slope = backward.grad_loss.get(n) * (loss_of(above, n) - loss_of(below, n)) / 2e-5;
        }
        EXPECT_NEAR(gradient.get(i), slope, 1e-9);
        EXPECT_NEAR(golden_gradient.value[static_cast<size_t>(i)], gradient.get(i), 1e-14);
      }
    }
  }
}

TEST(CpuJsd, MatchesGoldenOnEveryInstructionSetAndBitsDoNotDependOnThreads) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const double beta : kBetas) {
        for (const auto& [rows, vocab] : std::vector<std::pair<int64_t, int64_t>>{{5, 37}, {2, 5000}, {1, 1}, {0, 9}}) {
          Jsd c = make_case(dtype, rows, vocab);
          c.params.beta = beta;
          const auto expected = golden_answer(c);
          const auto out = run(c);
          EXPECT_TRUE(matches(out.loss, expected.loss, dtype));
          EXPECT_TRUE(matches(out.student_kl, expected.student_kl, dtype));
          EXPECT_TRUE(matches(out.teacher_lse, expected.teacher_lse, dtype));
          const JsdGradient backward = backward_of(c);
          const Tensor gradient = run(backward).grad_logits;
          EXPECT_TRUE(matches(gradient, golden_answer(backward).grad_logits, dtype));
          for (const cpu::ParallelFor& hook : other_hooks()) {
            EXPECT_EQ(run(c, hook).loss.bytes(), out.loss.bytes());
            EXPECT_EQ(run(backward, hook).grad_logits.bytes(), gradient.bytes());
          }
        }
      }
    }
  });
}

TEST(CpuJsd, EqualDistributionsHaveNoDivergenceAndNoGradient) {
  for (const double beta : kBetas) {
    Jsd c = make_case(Dtype::f32, 3, 50);
    c.teacher_logits = c.logits;
    c.params.beta = beta;
    const Tensor gradient = run(backward_of(c)).grad_logits;
    for (int64_t n = 0; n < 3; ++n) EXPECT_NEAR(run(c).loss.get(n), 0, 1e-15);
    for (int64_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(gradient.get(i), 0, 1e-7);  // lse is fp32
  }
}

TEST(CpuJsd, ImpossibleTokensAreLegalAndInfiniteOnlyWhereTheDivergenceIs) {
  for (const double beta : kBetas) {
    Jsd c;
    c.logits = numbers({0, -kInfinity, 1, 0, 0, 0}, {2, 3});
    c.teacher_logits = numbers({0, 0, 0, 0, -kInfinity, 1}, {2, 3});  // the student's, then the teacher's is impossible
    c.params.beta = beta;
    const Tensor loss = run(c).loss;
    const auto golden = golden_answer(c).loss;
    EXPECT_EQ(std::isinf(loss.get(0)), beta == 0);
    EXPECT_EQ(std::isinf(loss.get(1)), beta == 1);
    for (int64_t n = 0; n < 2; ++n) {
      const double want = golden.value[static_cast<size_t>(n)];
      EXPECT_TRUE(want == loss.get(n) || std::fabs(want - loss.get(n)) < 1e-14) << want << ", " << loss.get(n);
    }
  }
}

TEST(CpuJsd, ARowOfEitherModelWithoutAFiniteLogitIsADataErrorAndMaskedRowsAreNotRead) {
  Jsd c = make_case(Dtype::f32, 5, 9);
  c.mask = flags({1, 0, 1, 1, 1});
  for (int64_t v = 0; v < 9; ++v) {
    c.logits.set(9 + v, kNan);
    c.teacher_logits.set(2 * 9 + v, -kInfinity);
    c.logits.set(4 * 9 + v, -kInfinity);
  }
  const JsdGradient backward = backward_of(c);
  const auto out = run(c);
  const auto result = run(backward);
  for (const cpu::DataError& error : {out.error, result.error}) {
    EXPECT_EQ(error.kind, cpu::kNoFiniteLogit);
    EXPECT_EQ(error.row, 2);
  }
  EXPECT_EQ(golden_answer(c).error.row, 2);
  EXPECT_EQ(out.loss.get(1), 0);
  EXPECT_EQ(result.grad_logits.get(9), 0);
  for (const int64_t n : {2, 4}) {
    EXPECT_TRUE(std::isnan(out.loss.get(n)));
    EXPECT_TRUE(std::isnan(result.grad_logits.get(n * 9 + 3)));
  }
  EXPECT_TRUE(std::isfinite(out.loss.get(3)));
}

TEST(CpuJsd, StridedLogitsGiveTheSameBits) {
  for (const Dtype dtype : kFloatDtypes) {
    Jsd c = make_case(dtype, 3, 131);
    const auto want = run(c);
    const std::vector<double> student = list_of(c.logits), teacher = list_of(c.teacher_logits);
    c.logits = numbers(student, {3, 131}, dtype, Strides::gaps);
    c.teacher_logits = numbers(teacher, {3, 131}, dtype, Strides::reversed);
    EXPECT_EQ(run(c).loss.bytes(), want.loss.bytes());
  }
}

// KL(x || y) of two rows of logits.
long double exact_kl(const std::vector<long double>& x, const std::vector<long double>& y) {
  long double sum = 0;
  for (size_t v = 0; v < x.size(); ++v) sum += x[v] * std::log(x[v] / y[v]);
  return sum;
}
std::vector<long double> exact_softmax(const Tensor& logits, int64_t row, int64_t vocab) {
  std::vector<long double> p;
  long double sum = 0;
  for (int64_t v = 0; v < vocab; ++v)
    sum += p.emplace_back(std::exp(static_cast<long double>(logits.get(row * vocab + v))));
  for (long double& number : p) number /= sum;
  return p;
}

TEST(CpuJsd, OfCloseRowsIsRightAndNeverNegative) {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      for (const double move : {0.0, 1e-12, 1e-8, 1e-6, 1e-4, 1e-2}) {
        for (const double beta : {0.0, 1e-3, 0.1, 0.5, 0.9, 1.0}) {
          constexpr int64_t kRows = 24, kVocab = 29;
          Jsd c = make_case(dtype, kRows, kVocab);
          const Tensor moves = random_tensor(Dtype::f64, {kRows, kVocab}, move, 7);
          c.teacher_logits.fill([&](int64_t i) { return c.logits.get(i) + moves.get(i); });
          c.params.beta = beta;
          const auto got = run(c);
          const auto right = golden_answer(c);
          for (int64_t n = 0; n < kRows; ++n) {
            EXPECT_GE(got.loss.get(n), 0) << move << " beta " << beta;
            EXPECT_GE(got.student_kl.get(n), 0) << move << " beta " << beta;
            EXPECT_GE(right.loss.value[static_cast<size_t>(n)], 0) << move << " beta " << beta << " (golden)";
            if (move == 0) {
              EXPECT_EQ(got.loss.get(n), 0);
              EXPECT_EQ(right.loss.value[static_cast<size_t>(n)], 0);
            }
            if (move < (dtype == Dtype::f64 ? 1e-6 : 1e-4)) continue;  // an lse of fp32 is off by 1e-7
            const auto q = exact_softmax(c.logits, n, kVocab), p = exact_softmax(c.teacher_logits, n, kVocab);
            auto m = q;
            for (size_t v = 0; v < m.size(); ++v) m[v] = beta * p[v] + (1 - beta) * q[v];
            const double exact = static_cast<double>(beta == 0   ? exact_kl(p, q)
                                                     : beta == 1 ? exact_kl(q, p)
                                                                 : beta * exact_kl(p, m) + (1 - beta) * exact_kl(q, m));
            if (exact < 1e-13) continue;  // of which long double itself has lost the digits
            EXPECT_NEAR(got.loss.get(n) / exact, 1, 1e-4) << move << " beta " << beta;
            EXPECT_NEAR(right.loss.value[static_cast<size_t>(n)] / exact, 1, 1e-4) << move << " beta " << beta;
          }
        }
      }
    }
  });
}

// A probability that fp64 does not keep beside one that it does.
TEST(CpuJsd, IsNotNegativeWhereOneProbabilityVanishes) {
  for (const double beta : kBetas) {
    Jsd c;
    c.logits = numbers({0, -707.9, 0, -708.001, 0, -745.2, 0, -kInfinity}, {4, 2});
    c.teacher_logits = numbers({0, -708.001, 0, -707.9, 0, -745, 0, -kInfinity}, {4, 2});
    c.params.beta = beta;
    const auto got = run(c);
    for (int64_t n = 0; n < 4; ++n) EXPECT_GE(got.loss.get(n), 0) << n << " beta " << beta;
    EXPECT_EQ(got.loss.get(3), 0);
  }
}

}  // namespace
}  // namespace rlk::test
