// linear_jsd and its backward against Liger-Kernel's formula from hidden states on, against jsd of the products,
// what they hold of the logits, rows in error and impossible tokens.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/jsd.hpp>
#include <rlk/sdk/ops/jsd_backward.hpp>
#include <rlk/sdk/ops/linear.hpp>
#include <rlk/sdk/ops/linear_backward.hpp>
#include <rlk/sdk/ops/linear_jsd.hpp>
#include <rlk/sdk/ops/linear_jsd_backward.hpp>

#include <cmath>

#include "core/cpu/linear/linear_operands.hpp"
#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using LinearJsd = CallOf<ops::LinearJsd>;
using LinearJsdGradient = CallOf<ops::LinearJsdBackward>;

// The teacher's hidden states are two numbers longer.
LinearJsd make_jsd_case(int64_t rows, int64_t vocab, int64_t depth) {
  LinearJsd c;
  c.hidden = random_tensor(Dtype::f64, {rows, depth}, 1, 1);
  c.weight = random_tensor(Dtype::f64, {vocab, depth}, 0.5, 2);
  c.bias = random_tensor(Dtype::f64, {vocab}, 1, 3);
  c.teacher_hidden = random_tensor(Dtype::f64, {rows, depth + 2}, 1, 4);
  c.teacher_weight = random_tensor(Dtype::f64, {vocab, depth + 2}, 0.5, 5);
  c.teacher_bias = random_tensor(Dtype::f64, {vocab}, 1, 6);
  c.mask = Tensor(Dtype::u8, {rows});
  for (int64_t n = 0; n < rows; ++n) c.mask.set_int(n, n == rows / 2 ? 0 : 1);
  c.lse = c.teacher_lse = c.student_kl = wanted();
  return c;
}
LinearJsdGradient backward_of(const LinearJsd& c) {
  const auto out = run(c, cpu::tbb_parallel());
  auto backward = sdk::backward_of<LinearJsdGradient>(c);
  backward.lse = out.lse;
  backward.teacher_lse = out.teacher_lse;
  backward.student_kl = out.student_kl;
  backward.grad_loss = random_tensor(out.loss.dtype(), {out.loss.size()}, 1, 7);
  backward.grad_weight = backward.grad_bias = wanted();
  return backward;
}

// fused_linear_jsd_forward: the logits of both over the temperature, their log_softmax, and jsd_kernel, whose input is
// the student and whose target is the teacher. `moved` of the inputs' elements is the variable.
struct LigerJsd {
  const LinearJsd& c;
  const Tensor* moved = nullptr;
  int64_t element = 0;

  Dual get(const Tensor& tensor, int64_t i) const {
    return moved == &tensor && i == element ? variable(tensor.get(i)) : Dual(tensor.get(i));
  }
  std::vector<Dual> log_softmax(const Tensor& input, const Tensor& weight, const Tensor& bias, int64_t n) const {
    const int64_t depth = weight.shape()[1];
    std::vector<Dual> logits;
    Dual sum;
    for (int64_t v = 0; v < bias.size(); ++v) {
      Dual x = get(bias, v);
      for (int64_t d = 0; d < depth; ++d) x = x + get(input, n * depth + d) * get(weight, v * depth + d);
      logits.push_back(x / Dual(c.params.temperature));
      sum = sum + exp(logits.back());
    }
    for (Dual& x : logits) x = x - log(sum);
    return logits;
  }
  Dual loss(int64_t n) const {
    const std::vector<Dual> x = log_softmax(c.hidden, c.weight, c.bias, n);
    const std::vector<Dual> y = log_softmax(c.teacher_hidden, c.teacher_weight, c.teacher_bias, n);
    const double beta = c.params.beta;
    Dual loss;
    for (size_t v = 0; v < x.size(); ++v) {
      const Dual q = exp(x[v]), p = exp(y[v]), log_m = log(Dual(beta) * p + Dual(1 - beta) * q);
      if (beta == 0) {
        loss = loss + p * (y[v] - x[v]);
      } else if (beta == 1) {
        loss = loss + q * (x[v] - y[v]);
      } else {
        loss = loss + Dual(beta) * p * (y[v] - log_m) + Dual(1 - beta) * q * (x[v] - log_m);
      }
    }
    return loss;
  }
};

TEST(CpuLinearJsd, IsLigersFusedLossAndItsGradients) {
  for (const double beta : {0.0, 0.1, 0.5, 1.0}) {
    for (const double temperature : {1.0, 0.8}) {
      LinearJsd c = make_jsd_case(4, 7, 3);
      c.params.beta = beta;
      c.params.temperature = temperature;
      const auto got = run(c);
      for (int64_t n = 0; n < 4; ++n) {
        EXPECT_NEAR(got.loss.get(n), n == 2 ? 0 : LigerJsd{c}.loss(n).v, 1e-13);  // row 2 is masked
      }
      const LinearJsdGradient backward = backward_of(c);
      const auto gradients = run(backward);
      const auto expect_slopes = [&](const Tensor& input, const Tensor& gradient) {
        ASSERT_EQ(gradient.size(), input.size());
        for (int64_t i = 0; i < input.size(); ++i) {
          double slope = 0;
          for (const int64_t n : {0, 1, 3}) slope += backward.grad_loss.get(n) * LigerJsd{c, &input, i}.loss(n).d;
          EXPECT_NEAR(gradient.get(i), slope, 1e-13) << i;
        }
      };
      expect_slopes(c.hidden, gradients.grad_hidden);
      expect_slopes(c.weight, gradients.grad_weight);
      expect_slopes(c.bias, gradients.grad_bias);
    }
  }
}

Tensor product_of(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  CallOf<ops::Linear> product;
  product.x = x;
  product.weight = weight;
  product.bias = bias;
  return run(product, cpu::tbb_parallel()).y;
}

// More than a batch of rows, a segment and a chunk of the vocabulary, and a packed piece of a hidden state.
TEST(CpuLinearJsd, IsJsdOfTheProducts) {
  LinearJsd c = make_jsd_case(970, 2100, 130);
  c.params.beta = 0.3;
  c.params.temperature = 0.9;
  const auto got = run(c, cpu::tbb_parallel());
  const LinearJsdGradient fused = backward_of(c);
  const auto gradients = run(fused, cpu::tbb_parallel());

  CallOf<ops::Jsd> rest;
  rest.logits = product_of(c.hidden, c.weight, c.bias);
  rest.teacher_logits = product_of(c.teacher_hidden, c.teacher_weight, c.teacher_bias);
  rest.mask = c.mask;
  rest.lse = rest.teacher_lse = rest.student_kl = wanted();
  rest.params.beta = c.params.beta;
  rest.params.temperature = c.params.temperature;
  const auto want = run(rest, cpu::tbb_parallel());
  auto of_rest = sdk::backward_of<CallOf<ops::JsdBackward>>(rest);
  of_rest.lse = want.lse;
  of_rest.teacher_lse = want.teacher_lse;
  of_rest.student_kl = want.student_kl;
  of_rest.grad_loss = fused.grad_loss;
  CallOf<ops::LinearBackward> of_product;
  of_product.x = c.hidden;
  of_product.weight = c.weight;
  of_product.grad_y = run(of_rest, cpu::tbb_parallel()).grad_logits;
  of_product.grad_weight = of_product.grad_bias = wanted();
  const auto want_gradients = run(of_product, cpu::tbb_parallel());

  const auto expect_near = [](const Tensor& a, const Tensor& b, double bound) {
    ASSERT_EQ(a.size(), b.size());
    for (int64_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a.get(i), b.get(i), bound) << i;
  };
  expect_near(got.loss, want.loss, 1e-12);
  expect_near(got.lse, want.lse, 1e-12);
  expect_near(got.teacher_lse, want.teacher_lse, 1e-12);
  expect_near(got.student_kl, want.student_kl, 1e-12);
  expect_near(gradients.grad_hidden, want_gradients.grad_x, 1e-13);
  expect_near(gradients.grad_weight, want_gradients.grad_weight, 1e-12);
  expect_near(gradients.grad_bias, want_gradients.grad_bias, 1e-12);
}

TEST(CpuLinearJsd, MatchesGoldenForRowsAroundThoseOfATask) {
  for_each_target([] {
    const int64_t rows = cpu::kLinearTilesPerTask * cpu::linear_tile_rows(true);
    for (const int64_t more : {0, 1, 2}) {  // one is masked
      const LinearJsd c = make_jsd_case(rows + more, 5, 3);
      EXPECT_TRUE(matches(run(c).loss, golden_answer(c).loss, Dtype::f64));
    }
  });
}

TEST(CpuLinearJsd, HoldsAFewPercentOfTheLogits) {
  cpu::CallOf<ops::LinearJsdBackward> backward;
  backward.N = 16384;
  backward.V = 151936;
  backward.D = 4096;
  backward.E = 8192;
  for (cpu::Array* array : {&backward.hidden, &backward.weight, &backward.teacher_hidden, &backward.teacher_weight}) {
    array->dtype = cpu::Dtype::bf16;
  }
  backward.grad_weight.ndim = 2;
  backward.grad_bias.ndim = 1;
  auto forward = sdk::forward_of<cpu::CallOf<ops::LinearJsd>>(backward);
  forward.N = backward.N, forward.V = backward.V, forward.D = backward.D, forward.E = backward.E;
  const int64_t logits = backward.N * backward.V * 2;  // bytes of one model's in bf16
  EXPECT_LT(cpu::workspace_bytes<ops::LinearJsd>(forward, 16), logits / 50);
  EXPECT_LT(cpu::workspace_bytes<ops::LinearJsdBackward>(backward, 16), logits / 50);
}

// Of several blocks the other model has finite logits in the last one only.
TEST(CpuLinearJsd, ARowOfEitherModelWithoutAFiniteLogitIsADataErrorAndMaskedRowsAreNotRead) {
  for (const int64_t vocab : {1, 7, 70}) {
    for (const bool of_teacher : {false, true}) {
      SCOPED_TRACE(std::to_string(vocab) + (of_teacher ? " teacher" : " student"));
      LinearJsd c = make_jsd_case(5, vocab, 3);
      for (int64_t d = 0; d < 3; ++d) c.hidden.set(2 * 3 + d, kNan);  // is masked
      EXPECT_EQ(run(c).loss.get(2), 0);
      EXPECT_TRUE(std::isfinite(run(backward_of(c)).grad_weight.get(0)));
      Tensor &bias = of_teacher ? c.teacher_bias : c.bias, &other = of_teacher ? c.bias : c.teacher_bias;
      for (int64_t v = 0; v < vocab; ++v) bias.set(v, -kInfinity);
      for (int64_t v = 0; v < vocab - 6 && vocab > 64; ++v) other.set(v, -kInfinity);
      c.mask.set_int(0, 0);
      const auto got = run(c);
      const auto gradients = run(backward_of(c));
      for (const cpu::DataError& error : {got.error, gradients.error}) {
        EXPECT_EQ(error.kind, cpu::kNoFiniteLogit);
        EXPECT_EQ(error.row, 1);
        EXPECT_EQ(error.value, 0);
      }
      EXPECT_EQ(golden_answer(c).error.row, 1);
      EXPECT_EQ(gradients.grad_hidden.get(0), 0);
      for (const Tensor* tensor : {&got.loss, &got.lse, &got.teacher_lse, &got.student_kl}) {
        EXPECT_TRUE(std::isnan(tensor->get(3)));
      }
      EXPECT_TRUE(std::isnan(gradients.grad_weight.get(0)));
    }
  }
}

TEST(CpuLinearJsd, ImpossibleTokensAreInfiniteOnlyWhereTheDivergenceIs) {
  for (const double beta : {0.0, 0.5, 1.0}) {
    for (const bool of_teacher : {false, true}) {
      LinearJsd c = make_jsd_case(3, 7, 3);
      c.params.beta = beta;
      (of_teacher ? c.teacher_bias : c.bias).set(4, -kInfinity);
      const double loss = run(c).loss.get(0), want = golden_answer(c).loss.value[0];
      EXPECT_EQ(std::isinf(loss), of_teacher ? beta == 1 : beta == 0);
      EXPECT_TRUE(want == loss || std::fabs(want - loss) < 1e-14) << want << ", " << loss;
    }
  }
}

}  // namespace
}  // namespace rlk::test
