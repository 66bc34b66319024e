// linear_cross_entropy and its backward against Liger-Kernel's formula from hidden states on, against cross_entropy of
// the products, what they hold of the scores, and rows in error; and both in one.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/cross_entropy.hpp>
#include <rlk/sdk/ops/cross_entropy_backward.hpp>
#include <rlk/sdk/ops/fused_linear_cross_entropy.hpp>
#include <rlk/sdk/ops/linear.hpp>
#include <rlk/sdk/ops/linear_backward.hpp>
#include <rlk/sdk/ops/linear_cross_entropy.hpp>
#include <rlk/sdk/ops/linear_cross_entropy_backward.hpp>

#include <cmath>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using LinearCrossEntropy = CallOf<ops::LinearCrossEntropy>;
using LinearCrossEntropyGradient = CallOf<ops::LinearCrossEntropyBackward>;
using ops::linear_cross_entropy::Reduction;

LinearCrossEntropy make_loss_case(int64_t rows, int64_t vocab, int64_t depth) {
  LinearCrossEntropy c;
  c.hidden = random_tensor(Dtype::f64, {rows, depth}, 1, 1);
  c.weight = random_tensor(Dtype::f64, {vocab, depth}, 0.5, 2);
  c.bias = random_tensor(Dtype::f64, {vocab}, 1, 3);
  c.class_weight = Tensor(Dtype::f64, {vocab}).fill([](int64_t v) { return 0.25 * static_cast<double>(v % 7); });
  c.ids = Tensor(Dtype::i64, {rows});
  for (int64_t n = 0; n < rows; ++n) c.ids.set_int(n, n * 5 % vocab);
  c.ids.set_int(rows / 2, -100);
  c.token_loss = c.lse = c.z_loss = wanted();
  return c;
}
LinearCrossEntropyGradient backward_of(const LinearCrossEntropy& c) {
  auto backward = sdk::backward_of<LinearCrossEntropyGradient>(c);
  backward.lse = run(c).lse;
  backward.grad_loss = numbers({1.5});
  backward.grad_weight = backward.grad_bias = wanted();
  return backward;
}

// fused_linear_cross_entropy_forward: logits_chunk = input @ weight.t() + bias, then liger_cross_entropy_kernel of
// every row, whose losses are divided by the weights of all targets and whose z-losses by the rows. `moved` of the
// inputs' elements is the variable.
Dual liger(const LinearCrossEntropy& c, const Tensor* moved = nullptr, int64_t element = 0) {
  const auto get = [&](const Tensor& tensor, int64_t i) {
    return moved == &tensor && i == element ? variable(tensor.get(i)) : Dual(tensor.get(i));
  };
  const int64_t vocab = c.weight.shape()[0], depth = c.weight.shape()[1];
  const double share = c.params.label_smoothing, cap = c.params.softcap;
  Dual loss, z_loss;
  double weights = 0, rows = 0;
  for (int64_t n = 0; n < c.ids.size(); ++n) {
    const int64_t target = c.ids.get_int(n);
    if (target == c.params.ignore_index) continue;
    std::vector<Dual> x;
    Dual sum, smooth;
    for (int64_t v = 0; v < vocab; ++v) {
      Dual score = get(c.bias, v);
      for (int64_t d = 0; d < depth; ++d) score = score + get(c.hidden, n * depth + d) * get(c.weight, v * depth + d);
      if (cap > 0) score = Dual(cap) * tanh(score / cap);
      x.push_back(score);
      sum = sum + exp(score);
    }
    for (int64_t v = 0; v < vocab; ++v) {
      smooth = smooth - Dual(c.class_weight.get(v)) * (x[static_cast<size_t>(v)] - log(sum));
    }
    const double weight = c.class_weight.get(target);
    loss = loss + Dual((1 - share) * weight) * (log(sum) - x[static_cast<size_t>(target)]) +
           Dual(share / static_cast<double>(vocab)) * smooth;
    z_loss = z_loss + Dual(c.params.lse_square_scale) * log(sum) * log(sum);
    weights += weight;
    rows += 1;
  }
  return c.params.reduction == Reduction::mean ? loss / weights + z_loss / rows : loss + z_loss;
}

// Of reduction sum the gradient of the sum of a row's scores is exactly 1.
TEST(CpuLinearCrossEntropy, IsLigersFusedLossAndItsGradients) {
  for (const double smoothing : {0.0, 0.5}) {
    for (const double z_scale : {0.0, 1e-2}) {
      for (const double softcap : {0.0, 1.5}) {
        for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
          LinearCrossEntropy c = make_loss_case(5, 8, 3);
          c.params.label_smoothing = smoothing;
          c.params.lse_square_scale = z_scale;
          c.params.softcap = softcap;
          c.params.reduction = reduction;
          EXPECT_NEAR(run(c).loss.get(0), liger(c).v, 1e-13);
          LinearCrossEntropyGradient backward = backward_of(c);
          backward.grad_loss = numbers({-16});
          const auto got = run(backward);
          const auto expect_slopes = [&](const Tensor& input, const Tensor& gradient) {
            ASSERT_EQ(gradient.size(), input.size());
            for (int64_t i = 0; i < input.size(); ++i) {
              EXPECT_NEAR(gradient.get(i), -16 * liger(c, &input, i).d, 1e-12) << i;
            }
          };
          expect_slopes(c.hidden, got.grad_hidden);
          expect_slopes(c.weight, got.grad_weight);
          expect_slopes(c.bias, got.grad_bias);
        }
      }
    }
  }
}

// More than a batch of rows, a segment and a chunk of the vocabulary, and a packed piece of a hidden state.
TEST(CpuLinearCrossEntropy, IsCrossEntropyOfTheProductsWithEveryOption) {
  LinearCrossEntropy c = make_loss_case(970, 2100, 130);
  c.params.label_smoothing = 0.1;
  c.params.lse_square_scale = 1e-3;
  c.params.softcap = 20;
  const auto got = run(c, cpu::tbb_parallel());
  LinearCrossEntropyGradient fused = backward_of(c);
  fused.grad_token_loss = random_tensor(Dtype::f64, {970}, 1e-3, 4);
  const auto gradients = run(fused, cpu::tbb_parallel());

  CallOf<ops::Linear> product;
  product.x = c.hidden;
  product.weight = c.weight;
  product.bias = c.bias;
  CallOf<ops::CrossEntropy> rest;
  rest.logits = run(product).y;
  rest.ids = c.ids;
  rest.class_weight = c.class_weight;
  rest.token_loss = rest.lse = rest.z_loss = wanted();
  rest.params.label_smoothing = c.params.label_smoothing;
  rest.params.lse_square_scale = c.params.lse_square_scale;
  rest.params.softcap = c.params.softcap;
  const auto want = run(rest);
  auto of_rest = sdk::backward_of<CallOf<ops::CrossEntropyBackward>>(rest);
  of_rest.lse = want.lse;
  of_rest.grad_loss = fused.grad_loss;
  of_rest.grad_token_loss = fused.grad_token_loss;
  auto of_product = sdk::backward_of<CallOf<ops::LinearBackward>>(product);
  of_product.grad_y = run(of_rest).grad_logits;
  of_product.grad_weight = of_product.grad_bias = wanted();
  const auto want_gradients = run(of_product);

  const auto expect_near = [](const Tensor& a, const Tensor& b, double bound) {
    ASSERT_EQ(a.size(), b.size());
    for (int64_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a.get(i), b.get(i), bound) << i;
  };
  expect_near(got.loss, want.loss, 1e-12);
  expect_near(got.z_loss, want.z_loss, 1e-12);
  expect_near(got.token_loss, want.token_loss, 1e-11);
  expect_near(got.lse, want.lse, 1e-12);
  expect_near(gradients.grad_hidden, want_gradients.grad_x, 1e-14);
  expect_near(gradients.grad_weight, want_gradients.grad_weight, 1e-13);
  expect_near(gradients.grad_bias, want_gradients.grad_bias, 1e-13);
}

using Fused = CallOf<ops::FusedLinearCrossEntropy>;

Fused fused_of(const LinearCrossEntropy& c) {
  Fused fused;
  fused.hidden = c.hidden;
  fused.weight = c.weight;
  fused.bias = c.bias;
  fused.class_weight = c.class_weight;
  fused.ids = c.ids;
  fused.token_loss = fused.lse = fused.z_loss = fused.grad_weight = fused.grad_bias = wanted();
  fused.params.reduction = c.params.reduction;
  fused.params.label_smoothing = c.params.label_smoothing;
  fused.params.lse_square_scale = c.params.lse_square_scale;
  fused.params.softcap = c.params.softcap;
  fused.params.denominator = c.params.denominator;
  return fused;
}

TEST(CpuLinearCrossEntropy, FusedHasTheBitsOfTheTwoCallsThatItReplaces) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    LinearCrossEntropy c = make_loss_case(13, 70, 33);
    c.params.reduction = reduction;
    c.params.label_smoothing = 0.1;
    c.params.lse_square_scale = 1e-3;
    c.params.softcap = 20;
    c.params.denominator = reduction == Reduction::sum ? 3 : 0;
    LinearCrossEntropyGradient backward = backward_of(c);
    backward.grad_loss = numbers({1});
    const auto loss = run(c);
    const auto gradients = run(backward);
    const auto got = run(fused_of(c));
    EXPECT_EQ(got.loss.get(0), loss.loss.get(0));
    EXPECT_EQ(got.z_loss.get(0), loss.z_loss.get(0));
    const auto expect_same = [](const Tensor& a, const Tensor& b) {
      ASSERT_EQ(a.size(), b.size());
      for (int64_t i = 0; i < a.size(); ++i) ASSERT_EQ(a.get(i), b.get(i)) << i;
    };
    expect_same(got.token_loss, loss.token_loss);
    expect_same(got.lse, loss.lse);
    expect_same(got.grad_hidden, gradients.grad_hidden);
    expect_same(got.grad_weight, gradients.grad_weight);
    expect_same(got.grad_bias, gradients.grad_bias);
  }
}

TEST(CpuLinearCrossEntropy, FusedTellsTheLowestRowInError) {
  LinearCrossEntropy c = make_loss_case(5, 7, 3);
  c.ids.set_int(3, 7);
  c.ids.set_int(4, -1);
  const auto got = run(fused_of(c));
  EXPECT_EQ(got.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(got.error.row, 3);
  EXPECT_EQ(got.grad_hidden.get(2 * 3), 0) << "is ignored";
  EXPECT_TRUE(std::isfinite(got.grad_hidden.get(0)));
  for (const double x :
       {got.loss.get(0), got.lse.get(3), got.grad_hidden.get(3 * 3), got.grad_weight.get(0), got.grad_bias.get(0)}) {
    EXPECT_TRUE(std::isnan(x));
  }
}

TEST(CpuLinearCrossEntropy, HoldsAFewPercentOfTheScores) {
  cpu::CallOf<ops::LinearCrossEntropyBackward> backward;
  backward.N = 16384;
  backward.V = 151936;
  backward.D = 4096;
  backward.hidden.dtype = backward.weight.dtype = cpu::Dtype::bf16;
  backward.grad_weight.ndim = 2;
  backward.grad_bias.ndim = 1;
  backward.params.label_smoothing = 0.1;
  auto forward = sdk::forward_of<cpu::CallOf<ops::LinearCrossEntropy>>(backward);
  forward.N = backward.N, forward.V = backward.V, forward.D = backward.D;
  const int64_t scores = backward.N * backward.V * 2;  // bytes of the logits in bf16
  EXPECT_LT(cpu::workspace_bytes<ops::LinearCrossEntropy>(forward, 16), scores / 100);
  EXPECT_LT(cpu::workspace_bytes<ops::LinearCrossEntropyBackward>(backward, 16), scores / 50);
}

TEST(CpuLinearCrossEntropy, RowsInErrorAreNanAndTellTheLowestAndIgnoredRowsAreNotRead) {
  LinearCrossEntropy c = make_loss_case(5, 7, 3);
  for (int64_t d = 0; d < 3; ++d) c.hidden.set(2 * 3 + d, kNan);  // is ignored
  EXPECT_TRUE(std::isfinite(run(c).loss.get(0)));
  c.ids.set_int(3, 7);
  const auto got = run(c);
  const auto gradients = run(backward_of(c));
  for (const cpu::DataError& error : {got.error, gradients.error}) {
    EXPECT_EQ(error.kind, cpu::kIdOutOfRange);
    EXPECT_EQ(error.row, 3);
  }
  EXPECT_EQ(got.token_loss.get(2), 0);
  EXPECT_EQ(gradients.grad_hidden.get(2 * 3), 0);
  EXPECT_TRUE(std::isfinite(got.token_loss.get(4)));
  for (const Tensor* tensor : {&got.loss, &gradients.grad_weight, &gradients.grad_bias}) {
    EXPECT_TRUE(std::isnan(tensor->get(0)));
  }
  for (int64_t v = 0; v < 7; ++v) c.bias.set(v, -kInfinity);
  const auto all_masked = run(c).error;
  EXPECT_EQ(all_masked.kind, cpu::kNoFiniteLogit);
  EXPECT_EQ(all_masked.row, 0);
}

TEST(CpuLinearCrossEntropy, WithEveryIdOutOfRangeTheMeanIsNotZeroButNaN) {
  LinearCrossEntropy c = make_loss_case(5, 11, 3);
  c.ids = integers({-1, 11, -100, int64_t{1} << 40, -1});
  EXPECT_TRUE(std::isnan(run(c).loss.get(0)));
  EXPECT_TRUE(std::isnan(golden_answer(c).loss.value[0]));
}

}  // namespace
}  // namespace rlk::test
