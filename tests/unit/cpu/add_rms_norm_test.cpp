// add_rms_norm: what vLLM's has in place, and the sum that is normalised before it is rounded.
#include <rlk/sdk/ops/add_rms_norm.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using AddRmsNorm = CallOf<ops::AddRmsNorm>;

TEST(CpuAddRmsNorm, NormalisesTheSumAndKeepsItAsTheResidualStream) {
  AddRmsNorm c;
  c.x = numbers({1, 2, -1, 0}, {2, 2});
  c.residual = numbers({2, 2, 1, 0}, {2, 2});
  c.weight = numbers({2, -1}, {2});
  c.params.eps = 0.5;
  const auto got = run(c);
  const double sums[] = {3, 4, 0, 0};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got.sum.get(i), sums[i]);
    EXPECT_NEAR(got.y.get(i), sums[i] / std::sqrt(i < 2 ? 13 : 0.5) * c.weight.get(i % 2), 1e-15);
  }
  EXPECT_EQ(run(c, cpu::serial_parallel(), &AddRmsNorm::sum, &AddRmsNorm::residual).y.bytes(), got.y.bytes());
}

TEST(CpuAddRmsNorm, NormalisesTheSumThatIsNotYetRounded) {
  AddRmsNorm c;
  c.x = numbers({256, 1}, {1, 2}, Dtype::bf16);
  c.residual = numbers({1, 0}, {1, 2}, Dtype::bf16);
  c.weight = numbers({257, 257}, {2}, Dtype::f32);
  const auto got = run(c);
  EXPECT_EQ(got.sum.get(0), 256);  // 257 is not a bf16
  const double root = std::sqrt((257.0 * 257 + 1) / 2);
  EXPECT_NEAR(got.y.get(1), 257 / root, 0.004);  // of 256: 1.4197
}

}  // namespace
}  // namespace rlk::test
