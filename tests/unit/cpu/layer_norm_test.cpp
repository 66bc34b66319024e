// layer_norm: torch's formula, rows far from 0, rows near the ends of a dtype's range.
#include <rlk/sdk/ops/layer_norm.hpp>
#include <rlk/sdk/ops/layer_norm_backward.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

TEST(CpuLayerNorm, IsTorchsFormulaAndGivesItsMoments) {
  CallOf<ops::LayerNorm> c;
  c.x = numbers({1, 3, 8, 8}, {2, 2});
  c.weight = numbers({2, -1}, {2});
  c.bias = numbers({0.25, 0}, {2});
  c.mean = wanted();
  c.rstd = wanted();
  const auto got = run(c);
  const double rstd = 1 / std::sqrt(1 + 1e-5);
  const double y[] = {-2 * rstd + 0.25, -rstd, 0.25, 0};
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(got.y.get(i), y[i], 1e-15);
  EXPECT_EQ(got.mean.get(0), 2);
  EXPECT_NEAR(got.rstd.get(0), rstd, 1e-15);
  EXPECT_NEAR(got.rstd.get(1), 1 / std::sqrt(1e-5), 1e-10);
}

TEST(CpuLayerNorm, RowsFarFromZeroOrNearTheEndsOfTheRangeKeepTheirDigits) {
  const auto normalised = [](const std::vector<double>& row) {
    CallOf<ops::LayerNorm> c;
    c.x = numbers(row, {1, 2}, Dtype::f32);
    c.params.eps = 0;
    return run(c).y;
  };
  for (const Tensor& y : {normalised({16777216, 16777218}), normalised({-3e38, 3e38}), normalised({1e-36, 3e-36})}) {
    EXPECT_NEAR(y.get(0), -1, 1e-6);
    EXPECT_NEAR(y.get(1), 1, 1e-6);
  }
}

TEST(CpuLayerNormBackward, GradientsOfWeightAndBiasLoseNothingOfLongSums) {
  CallOf<ops::LayerNormBackward> c;
  c.grad_y = numbers({1, 2, 0x1p60, 0x1p60, 1, 2, -0x1p60, -0x1p60, 1, 2}, {5, 2});
  c.x = numbers({3, 5, 3, 5, 3, 5, 3, 5, 3, 5}, {5, 2});  // normalised, -1 and 1
  c.params.eps = 0;
  c.grad_weight = wanted();
  c.grad_bias = wanted();
  const auto got = run(c);
  EXPECT_EQ(list_of(got.grad_weight), (List{-3, 6}));
  EXPECT_EQ(list_of(got.grad_bias), (List{3, 6}));
}

}  // namespace
}  // namespace rlk::test
