// matmul, its gradients and gemm: broadcasts, many products at once, gemm's two ways to have c, bits.
#include <rlk/sdk/ops/gemm.hpp>
#include <rlk/sdk/ops/matmul.hpp>
#include <rlk/sdk/ops/matmul_backward.hpp>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Matmul = CallOf<ops::Matmul>;
using MatmulBackward = CallOf<ops::MatmulBackward>;
using Gemm = CallOf<ops::Gemm>;

void expect_near(const Tensor& got, const golden::Output& right) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(right.value.size()));
  const double bound = got.dtype() == Dtype::f64 ? 0x1p-50 : 0x1p-21;
  for (int64_t i = 0; i < got.size(); ++i) {
    const auto k = static_cast<size_t>(i);
    ASSERT_NEAR(got.get(i), right.value[k], bound * right.cond[k] + 1e-12) << i;
  }
}

TEST(CpuMatmul, RepeatsAMatrixOfEitherSideAndSumsItsGradient) {
  Matmul c;
  c.a = numbers({1, 2}, {1, 1, 1, 2});
  c.b = numbers({3, 4, 5, 6, 7, 8}, {3, 1, 2, 1});
  EXPECT_EQ(list_of(run(c).y), (List{11, 17, 23}));
  MatmulBackward b;
  b.grad_y = numbers({1, 10, 100}, {3, 1, 1, 1});
  b.a = c.a;
  b.b = c.b;
  b.grad_b = wanted();
  const auto got = run(b);
  EXPECT_EQ(list_of(got.grad_a), (List{3 + 50 + 700, 4 + 60 + 800}));
  EXPECT_EQ(list_of(got.grad_b), (List{1, 2, 10, 20, 100, 200}));
}

// [2, 1, 4, 64] x [1, 3, 64, 32], more products than a wave has rows, a side without batches. Then one dimension of one
// side alone is repeated, so that this gradient alone needs room for sums: b's second, then a's first.
TEST(CpuMatmul, ManyProductsAreGoldensAndBitsDoNotDependOnThreads) {
  struct Sizes {
    std::vector<int64_t> a, b, y;
  };
  for (const Sizes& sizes :
       {Sizes{{2, 1, 4, 64}, {1, 3, 64, 32}, {2, 3, 4, 32}}, Sizes{{50, 30, 1, 9}, {50, 30, 9, 17}, {50, 30, 1, 17}},
        Sizes{{3, 5, 100, 40}, {1, 1, 40, 70}, {3, 5, 100, 70}}, Sizes{{2, 2, 4, 64}, {2, 1, 64, 32}, {2, 2, 4, 32}},
        Sizes{{2, 3, 1, 64}, {2, 1, 64, 32}, {2, 3, 1, 32}}, Sizes{{1, 3, 1, 64}, {2, 3, 64, 32}, {2, 3, 1, 32}},
        Sizes{{1, 1, 4, 64}, {2, 1, 64, 32}, {2, 1, 4, 32}}}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      Matmul c;
      c.a = random_tensor(dtype, sizes.a, 1, 1);
      c.b = random_tensor(dtype, sizes.b, 1, 2);
      const Tensor y = run(c).y;
      expect_near(y, golden_answer(c).y);
      MatmulBackward b;
      b.grad_y = random_tensor(dtype, sizes.y, 1, 3);
      b.a = c.a;
      b.b = c.b;
      b.grad_b = wanted();
      const auto gradients = run(b);
      expect_near(gradients.grad_a, golden_answer(b).grad_a);
      expect_near(gradients.grad_b, golden_answer(b).grad_b);
      for (const cpu::ParallelFor& hook : other_hooks()) {
        EXPECT_EQ(run(c, hook).y.bytes(), y.bytes());
        const auto again = run(b, hook);
        EXPECT_EQ(again.grad_a.bytes(), gradients.grad_a.bytes());
        EXPECT_EQ(again.grad_b.bytes(), gradients.grad_b.bytes());
      }
    }
  }
}

// A repeated matrix of an empty batch is in no product. Several matrices, and rows and columns of a common factor, so
// that an element that is missed is not written as another one.
TEST(CpuMatmul, AnEmptyBatchHasGradientsOfZero) {
  struct Sizes {
    std::vector<int64_t> a, b, y;
  };
  for (const Sizes& sizes :
       {Sizes{{1, 1, 2, 3}, {0, 1, 3, 4}, {0, 1, 2, 4}}, Sizes{{1, 2, 4, 2}, {0, 2, 2, 6}, {0, 2, 4, 6}},
        Sizes{{2, 1, 4, 2}, {2, 0, 2, 6}, {2, 0, 4, 6}}, Sizes{{0, 2, 4, 2}, {1, 2, 2, 6}, {0, 2, 4, 6}},
        Sizes{{2, 0, 4, 2}, {2, 1, 2, 6}, {2, 0, 4, 6}}}) {
    MatmulBackward b;
    b.grad_y = Tensor(Dtype::f32, sizes.y);
    b.a = random_tensor(Dtype::f32, sizes.a, 1, 1);
    b.b = random_tensor(Dtype::f32, sizes.b, 1, 2);
    b.grad_b = wanted();
    const auto got = run(b);
    EXPECT_EQ(list_of(got.grad_a), List(static_cast<size_t>(b.a.size()), 0.0));
    EXPECT_EQ(list_of(got.grad_b), List(static_cast<size_t>(b.b.size()), 0.0));
  }
}

// InfiniOps' first generation: the default call adds to c in place. Its second, ONNX's form, drops c.
TEST(CpuMatmul, GemmAddsToCInPlaceOrReplacesWhatIsThere) {
  Gemm c;
  c.a = numbers({1, 2, 3, 4}, {1, 2, 2});
  c.b = numbers({1, 0, 0, 1}, {1, 2, 2});
  EXPECT_EQ(list_of(run(c).y), (List{1, 2, 3, 4}));
  c.c = numbers({10, 20, 30, 40}, {1, 2, 2});
  EXPECT_EQ(list_of(run(c, cpu::serial_parallel(), &Gemm::y, &Gemm::c).y), (List{11, 22, 33, 44}));
  c.params.alpha = -1;
  c.params.beta = 0.5;
  EXPECT_EQ(list_of(run(c).y), (List{4, 8, 12, 16}));
  c.c = numbers(List(4, kNan), {1, 2, 2});
  c.params.beta = 0;
  EXPECT_EQ(list_of(run(c).y), (List{-1, -2, -3, -4}));
}

TEST(CpuMatmul, GemmTakesEitherMatrixTransposed) {
  const Tensor a = numbers({1, 2, 3, 4, 5, 6}, {1, 2, 3}), b = numbers({1, 2, 0, 1, -1, 3}, {1, 3, 2});
  const Tensor a_turned = numbers({1, 4, 2, 5, 3, 6}, {1, 3, 2}), b_turned = numbers({1, 0, -1, 2, 1, 3}, {1, 2, 3});
  using ops::gemm::Transpose;
  const auto product = [](const Tensor& left, const Tensor& right, Transpose transpose) {
    Gemm c;
    c.a = left;
    c.b = right;
    c.params.transpose = transpose;
    return list_of(run(c).y);
  };
  const List want = {-2, 13, -2, 31};
  EXPECT_EQ(product(a, b, Transpose::none), want);
  EXPECT_EQ(product(a_turned, b, Transpose::a), want);
  EXPECT_EQ(product(a, b_turned, Transpose::b), want);
  EXPECT_EQ(product(a_turned, b_turned, Transpose::both), want);
}

}  // namespace
}  // namespace rlk::test
