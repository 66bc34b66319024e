// cross_entropy and its backward against torch's and Liger-Kernel's formulas, and rows that do not count.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/cross_entropy.hpp>
#include <rlk/sdk/ops/cross_entropy_backward.hpp>

#include <cmath>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using CrossEntropy = CallOf<ops::CrossEntropy>;
using ops::cross_entropy::Reduction;
using Scores = std::vector<Dual>;
constexpr int64_t kClasses = 7;

CrossEntropy make_case(bool weights) {
  CrossEntropy c;
  c.logits = random_tensor(Dtype::f64, {5, kClasses}, 2, 1);
  c.ids = integers({3, 0, -100, 6, 3});
  if (weights) c.class_weight = numbers({0.5, 2, 1, 0.25, 3, 1, 0});
  c.token_loss = c.lse = c.z_loss = wanted();
  return c;
}
double weight_of(const CrossEntropy& c, int64_t v) {
  return c.class_weight.present() ? c.class_weight.get(v) : 1;
}

// torch.nn.functional.cross_entropy of one row with its label_smoothing and weight (CrossEntropyLoss's page), of which
// the mean is over the weights of the targets.
Dual torch_row(const CrossEntropy& c, const Scores& x, int64_t target) {
  Dual sum;
  for (const Dual& score : x) sum = sum + exp(score);
  Dual nll, smooth;
  for (int64_t v = 0; v < kClasses; ++v) {
    const Dual log_p = x[static_cast<size_t>(v)] - log(sum);
    if (v == target) nll = -weight_of(c, v) * log_p;
    smooth = smooth - Dual(weight_of(c, v)) * log_p;
  }
  const double share = c.params.label_smoothing;
  return Dual(1 - share) * nll + Dual(share / kClasses) * smooth;
}
// liger_cross_entropy_kernel: the capped scores, and lse_square_scale lse^2, not weighted and divided by the rows.
struct Liger {
  Dual loss, z_loss;
};
Liger liger_row(const CrossEntropy& c, Scores x, int64_t target) {
  const double cap = c.params.softcap;
  Dual sum;
  for (Dual& score : x) {
    if (cap > 0) score = Dual(cap) * tanh(score / cap);
    sum = sum + exp(score);
  }
  return {torch_row(c, x, target), Dual(c.params.lse_square_scale) * log(sum) * log(sum)};
}

// The whole of it; row `moved` has the derivative of its column `column`.
Dual liger(const CrossEntropy& c, int64_t moved, int64_t column) {
  Liger sum;
  double weights = 0, rows = 0;
  for (int64_t n = 0; n < 5; ++n) {
    const int64_t target = c.ids.get_int(n);
    if (target == c.params.ignore_index) continue;
    Scores x;
    for (int64_t v = 0; v < kClasses; ++v) {
      const double score = c.logits.get(n * kClasses + v);
      x.push_back(n == moved && v == column ? variable(score) : Dual(score));
    }
    const Liger row = liger_row(c, x, target);
    sum = {sum.loss + row.loss, sum.z_loss + row.z_loss};
    weights += weight_of(c, target);
    rows += 1;
  }
  return c.params.reduction == Reduction::mean ? sum.loss / weights + sum.z_loss / rows : sum.loss + sum.z_loss;
}

Tensor gradient_of(const CrossEntropy& c, double grad_loss) {
  auto backward = sdk::backward_of<CallOf<ops::CrossEntropyBackward>>(c);
  backward.lse = run(c).lse;
  backward.grad_loss = numbers({grad_loss});
  return run(backward).grad_logits;
}

TEST(CpuCrossEntropy, IsTorchsAndLigersFormulaAndItsGradient) {
  for (const bool weights : {false, true}) {
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      for (const double z_scale : {0.0, 1e-2}) {
        for (const double softcap : {0.0, 1.5}) {
          for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
            CrossEntropy c = make_case(weights);
            c.params.label_smoothing = smoothing;
            c.params.lse_square_scale = z_scale;
            c.params.softcap = softcap;
            c.params.reduction = reduction;
            EXPECT_NEAR(run(c).loss.get(0), liger(c, -1, 0).v, 1e-13);
            const Tensor gradient = gradient_of(c, 1.5);
            for (int64_t i = 0; i < 5 * kClasses; ++i) {
              EXPECT_NEAR(gradient.get(i), 1.5 * liger(c, i / kClasses, i % kClasses).d, 1e-14) << i;
            }
          }
        }
      }
    }
  }
}

TEST(CpuCrossEntropy, ReductionNoneGivesTheLossesOfRows) {
  CrossEntropy c = make_case(true);
  c.params.reduction = Reduction::none;
  const auto got = run(c);
  EXPECT_EQ(got.loss.get(0), 0);
  EXPECT_EQ(got.token_loss.get(2), 0);
  EXPECT_EQ(got.token_loss.get(3), 0);  // its class weighs nothing
  EXPECT_GT(got.token_loss.get(0), 0);
}

TEST(CpuCrossEntropy, WithoutARowThatCountsTheMeanIsZero) {
  CrossEntropy c = make_case(false);
  c.ids = integers({-100, -100, -100, -100, -100});
  EXPECT_EQ(run(c).loss.get(0), 0);
  EXPECT_EQ(list_of(gradient_of(c, 1)), std::vector<double>(5 * kClasses, 0));
}

// transformers' ForCausalLMLoss: the sum over num_items_in_batch.
TEST(CpuCrossEntropy, NumItemsInBatchIsADenominator) {
  CrossEntropy c = make_case(false);
  c.params.reduction = Reduction::sum;
  const double sum = run(c).loss.get(0);
  c.params.denominator = 100;
  EXPECT_NEAR(run(c).loss.get(0), sum / 100, 1e-15);
}

TEST(CpuCrossEntropy, AnImpossibleTargetCostsInfinitelyMuchAndAnIdOutOfRangeIsADataError) {
  CrossEntropy c = make_case(false);
  c.logits.set(3, -kInfinity);
  EXPECT_EQ(run(c).token_loss.get(0), kInfinity);
  EXPECT_EQ(run(c).loss.get(0), kInfinity);
  c.ids = integers({1, 0, -100, 7, 3});
  const auto got = run(c);
  EXPECT_EQ(got.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(got.error.row, 3);
  EXPECT_TRUE(std::isnan(got.token_loss.get(3)));
  EXPECT_TRUE(std::isnan(got.loss.get(0)));
  EXPECT_TRUE(std::isfinite(got.token_loss.get(4)));
}

TEST(CpuCrossEntropy, WithEveryIdOutOfRangeTheMeanIsNotZeroButNaNWithAndWithoutWeights) {
  for (const bool weights : {false, true}) {
    CrossEntropy c = make_case(weights);
    c.ids = integers({-1, kClasses, -100, int64_t{1} << 40, -1});
    EXPECT_TRUE(std::isnan(run(c).loss.get(0))) << weights;
    EXPECT_TRUE(std::isnan(golden_answer(c).loss.value[0])) << weights;
  }
}

}  // namespace
}  // namespace rlk::test
