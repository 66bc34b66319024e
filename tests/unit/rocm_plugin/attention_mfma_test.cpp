// Which devices' matrix units are used for which numbers?
#include <gtest/gtest.h>

#include "plugins/rocm/attention_mfma.hpp"

namespace rlk::rocm {
namespace {

std::string declined(const std::string& architecture, sdk::Dtype dtype, int width = 64) {
  const sdk::Refusal refused = refuse_matrix_unit(architecture, width, dtype);
  return refused ? refused->reason_code : "";
}

TEST(MatrixUnitTest, ADeviceIsTakenWhereItsInstructionKeepsEveryNumber) {
  for (const char* both : {"gfx940", "gfx941", "gfx942", "gfx950"}) {
    EXPECT_EQ(declined(both, sdk::Dtype::bf16), "");
    EXPECT_EQ(declined(both, sdk::Dtype::f16), "");
  }
  EXPECT_EQ(declined("gfx908", sdk::Dtype::f16), "");
  EXPECT_EQ(declined("gfx908", sdk::Dtype::bf16), "DTYPE");
  EXPECT_EQ(declined("gfx90a", sdk::Dtype::bf16), "");
  EXPECT_EQ(declined("gfx90a", sdk::Dtype::f16), "SUBNORMALS");
}

TEST(MatrixUnitTest, OthersAreDeclinedByName) {
  for (const char* other : {"gfx906", "gfx1030", "gfx1100", "gfx1201", ""}) {
    EXPECT_EQ(declined(other, sdk::Dtype::bf16), "ARCH") << other;
  }
  EXPECT_NE(refuse_matrix_unit("gfx906", 64, sdk::Dtype::f16)->reason.find("gfx906"), std::string::npos);
  EXPECT_NE(refuse_matrix_unit("", 64, sdk::Dtype::f16)->reason.find("not named"), std::string::npos);
  EXPECT_EQ(declined("gfx942", sdk::Dtype::bf16, 32), "SIMT_WIDTH");
}

}  // namespace
}  // namespace rlk::rocm
