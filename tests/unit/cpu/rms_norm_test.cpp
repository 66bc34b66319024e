// rms_norm: torch's formula, sizes near the ends of a dtype's range.
#include <rlk/sdk/ops/rms_norm.hpp>
#include <rlk/sdk/ops/rms_norm_backward.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using RmsNorm = CallOf<ops::RmsNorm>;

TEST(CpuRmsNorm, IsTorchsFormulaAndGivesItsRoots) {
  RmsNorm c;
  c.x = numbers({3, 4, 0, 0, 1, 1}, {3, 2});
  c.weight = numbers({2, -1}, {2});
  c.params.eps = 0.5;
  c.rstd = wanted();
  const auto got = run(c);
  const List roots = {1 / std::sqrt(13), 1 / std::sqrt(0.5), 1 / std::sqrt(1.5)};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(got.y.get(i), c.x.get(i) * roots[static_cast<size_t>(i / 2)] * c.weight.get(i % 2), 1e-15);
  }
  for (int64_t n = 0; n < 3; ++n) EXPECT_NEAR(got.rstd.get(n), roots[static_cast<size_t>(n)], 1e-15);
}

// Squares of these leave the dtype's range, in both directions.
TEST(CpuRmsNorm, RowsNearTheEndsOfTheRangeHaveFiniteResults) {
  for (const double size : {1e38, 1e-30, 1e300, 1e-300}) {
    const Dtype dtype = std::fabs(std::log10(size)) > 40 ? Dtype::f64 : Dtype::f32;
    RmsNorm c;
    c.x = numbers({size, -size, size, 0}, {1, 4}, dtype);
    c.params.eps = 0;
    const Tensor y = run(c).y;
    EXPECT_NEAR(y.get(0), std::sqrt(4.0 / 3), 1e-6) << size;
    EXPECT_NEAR(y.get(1), -std::sqrt(4.0 / 3), 1e-6) << size;
    EXPECT_EQ(y.get(3), 0) << size;
  }
}

// Beside squares that leave the range, too.
TEST(CpuRmsNorm, EpsCountsBesideSmallNumbers) {
  for (const double size : {1e-15, 1e-30, 0x1p-130, 0x1p-149}) {
    RmsNorm c;
    c.x = numbers({size, 0, 0, -size}, {1, 4}, Dtype::f32);
    c.params.eps = 1.5 * size * size;  // three times their mean square
    const Tensor y = run(c).y;
    EXPECT_NEAR(y.get(0), std::sqrt(0.5), 1e-6) << size;
    EXPECT_NEAR(y.get(3), -std::sqrt(0.5), 1e-6) << size;
  }
}

TEST(CpuRmsNormBackward, AWeightsGradientLosesNothingOfLongSums) {
  CallOf<ops::RmsNormBackward> c;
  c.grad_y = numbers({1, 0x1p60, 1, -0x1p60, 1}, {5, 1});
  c.x = numbers({4, 4, 4, 4, 4}, {5, 1});  // normalised, 1
  c.weight = numbers({1}, {1});
  c.params.eps = 0;
  c.grad_weight = wanted();
  EXPECT_EQ(run(c).grad_weight.get(0), 3);
  c.grad_y = numbers({1, kInfinity, 1, -1e30, 1}, {5, 1});
  EXPECT_EQ(run(c).grad_weight.get(0), kInfinity);
}

}  // namespace
}  // namespace rlk::test
