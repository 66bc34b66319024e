// linear and its gradients: torch's formula, sizes around every tile, piece and wave, bits.
#include <rlk/sdk/ops/linear.hpp>
#include <rlk/sdk/ops/linear_backward.hpp>

#include "core/cpu/simd/amx.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Linear = CallOf<ops::Linear>;
using LinearBackward = CallOf<ops::LinearBackward>;

class CpuLinear : public ::testing::Test {
protected:
  void TearDown() override { cpu::allow_amx(true); }

  static Linear random_call(Dtype dtype, int64_t rows, int64_t depth, int64_t columns) {
    Linear c;
    c.x = random_tensor(dtype, {rows, depth}, 1, 1);
    c.weight = random_tensor(dtype, {columns, depth}, 0.5, 2);
    c.bias = random_tensor(dtype, {columns}, 1, 3);
    return c;
  }
  static LinearBackward random_backward(Dtype dtype, int64_t rows, int64_t depth, int64_t columns) {
    LinearBackward c;
    c.grad_y = random_tensor(dtype, {rows, columns}, 1, 4);
    c.x = random_tensor(dtype, {rows, depth}, 1, 1);
    c.weight = random_tensor(dtype, {columns, depth}, 0.5, 2);
    c.grad_weight = wanted();
    c.grad_bias = wanted();
    return c;
  }
  static void expect_near(const Tensor& got, const golden::Output& right) {
    const Dtype dtype = got.dtype();
    const double half_ulp = dtype == Dtype::bf16 ? 0x1p-8 : dtype == Dtype::f16 ? 0x1p-11 : 0;
    const double bound = dtype == Dtype::f64 ? 0x1p-50 : 0x1p-21;
    ASSERT_EQ(got.size(), static_cast<int64_t>(right.value.size()));
    for (int64_t i = 0; i < got.size(); ++i) {
      const auto k = static_cast<size_t>(i);
      ASSERT_NEAR(got.get(i), right.value[k], half_ulp * std::abs(right.value[k]) + bound * right.cond[k] + 1e-7) << i;
    }
  }
};

TEST_F(CpuLinear, IsTorchsFormulaAndItsGradients) {
  Linear c;
  c.x = numbers({1, 2, 3, 4, 5, 6}, {2, 3});
  c.weight = numbers({1, 0, -1, 2, 1, 0.5}, {2, 3});
  c.bias = numbers({10, 20}, {2});
  EXPECT_EQ(list_of(run(c).y), (List{8, 25.5, 8, 36}));
  LinearBackward b;
  b.grad_y = numbers({1, 2, 3, 4}, {2, 2});
  b.x = c.x;
  b.weight = c.weight;
  b.grad_weight = wanted();
  b.grad_bias = wanted();
  const auto got = run(b);
  EXPECT_EQ(list_of(got.grad_x), (List{5, 2, 0, 11, 4, -1}));
  EXPECT_EQ(list_of(got.grad_weight), (List{13, 17, 21, 18, 24, 30}));
  EXPECT_EQ(list_of(got.grad_bias), (List{4, 6}));
}

// Rows around a tile, a piece and a wave; depths around a tile of bf16, a packed piece and a chain; columns around a
// square of lanes and a block.
TEST_F(CpuLinear, EverySizeIsGoldens) {
  struct Size {
    int64_t rows, depth, columns;
  };
  for (const Size size : {Size{2, 40, 63},
                          {8, 129, 65},
                          {9, 31, 16},
                          {47, 32, 17},
                          {97, 33, 130},
                          {289, 5, 70},
                          {2310, 40, 9},
                          {17, 513, 33},
                          {1, 1100, 100},
                          {1250, 1, 1}}) {
    for (const Dtype dtype : kFloatDtypes) {
      SCOPED_TRACE(std::to_string(size.rows) + " x " + std::to_string(size.depth) + " x " +
                   std::to_string(size.columns));
      const Linear c = random_call(dtype, size.rows, size.depth, size.columns);
      expect_near(run(c).y, golden_answer(c).y);
      const LinearBackward b = random_backward(dtype, size.rows, size.depth, size.columns);
      const auto got = run(b);
      const auto right = golden_answer(b);
      expect_near(got.grad_x, right.grad_x);
      expect_near(got.grad_weight, right.grad_weight);
      expect_near(got.grad_bias, right.grad_bias);
    }
  }
}

// One column of many rows packs more for the gradient of the bias than for that of x.
TEST_F(CpuLinear, TheGradientOfTheBiasAloneHasRoomOfItsOwn) {
  for (const Dtype dtype : kFloatDtypes) {
    LinearBackward b = random_backward(dtype, 4096, 1, 1);
    b.grad_weight = Tensor();
    const auto got = run(b);
    const auto right = golden_answer(b);
    expect_near(got.grad_x, right.grad_x);
    expect_near(got.grad_bias, right.grad_bias);
  }
}

TEST_F(CpuLinear, BitsDoNotDependOnThreadsStridesOrCompany) {
  for (const Dtype dtype : kFloatDtypes) {
    const Linear c = random_call(dtype, 300, 150, 70);
    const Tensor want = run(c).y;
    const LinearBackward b = random_backward(dtype, 300, 150, 70);
    const auto gradients = run(b);
    for (const cpu::ParallelFor& hook : other_hooks()) {
      EXPECT_EQ(run(c, hook).y.bytes(), want.bytes());
      const auto again = run(b, hook);
      EXPECT_EQ(again.grad_x.bytes(), gradients.grad_x.bytes());
      EXPECT_EQ(again.grad_weight.bytes(), gradients.grad_weight.bytes());
      EXPECT_EQ(again.grad_bias.bytes(), gradients.grad_bias.bytes());
    }
    Linear other = c;
    other.x = numbers(list_of(c.x), {300, 150}, dtype, Strides::reversed);
    other.weight = numbers(list_of(c.weight), {70, 150}, dtype, Strides::reversed);
    EXPECT_EQ(run(other).y.bytes(), want.bytes());
    for (const int64_t row : {0, 47, 48, 287, 288, 299}) {
      Linear alone = c;
      const List all = list_of(c.x);
      alone.x = numbers(List(all.begin() + row * 150, all.begin() + (row + 1) * 150), {1, 150}, dtype);
      const List got = list_of(run(alone).y), both = list_of(want);
      for (size_t m = 0; m < 70; ++m) ASSERT_EQ(got[m], both[static_cast<size_t>(row) * 70 + m]) << row;
    }
  }
}

TEST_F(CpuLinear, WithoutTheTileUnitSumsAreTheSame) {
  const Linear c = random_call(Dtype::bf16, 60, 700, 90);
  const List tiles = list_of(run(c).y);
  cpu::allow_amx(false);
  const List vectors = list_of(run(c).y);
  for (size_t i = 0; i < tiles.size(); ++i)
    ASSERT_NEAR(tiles[i], vectors[i], 0x1p-7 * std::abs(vectors[i]) + 1e-4) << i;
}

TEST_F(CpuLinear, WithoutFeaturesItIsTheBias) {
  Linear c;
  c.x = Tensor(Dtype::f32, {3, 0});
  c.weight = Tensor(Dtype::f32, {2, 0});
  c.bias = numbers({1, -2}, {2}, Dtype::f32);
  EXPECT_EQ(list_of(run(c).y), (List{1, -2, 1, -2, 1, -2}));
}

}  // namespace
}  // namespace rlk::test
