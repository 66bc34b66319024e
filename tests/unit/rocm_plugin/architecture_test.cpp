// Does the plugin name a card's instruction set as the compiler does, from what the system tells?
#include <gtest/gtest.h>

#include "framework/env.hpp"
#include "framework/fs.hpp"
#include "plugins/rocm/hip.hpp"

namespace rlk::rocm {
namespace {

TEST(ArchitectureTest, NumbersAndOverridesBecomeTheCompilersNames) {
  EXPECT_EQ(architecture_of_number(90010), "gfx90a");
  EXPECT_EQ(architecture_of_number(90402), "gfx942");
  EXPECT_EQ(architecture_of_number(100300), "gfx1030");
  EXPECT_EQ(architecture_of_number(120001), "gfx1201");
  EXPECT_EQ(architecture_of_number(0), "");  // a CPU's node
  EXPECT_EQ(architecture_of_number(-1), "");
  EXPECT_EQ(architecture_of_override("10.3.0"), "gfx1030");
  EXPECT_EQ(architecture_of_override("9.0.10"), "gfx90a");
  for (const char* bad : {"", "10.3", "10.3.0.1", "gfx1030", "10.3.99"}) EXPECT_EQ(architecture_of_override(bad), "");
}

TEST(ArchitectureTest, OfSeveralCardsTheOneAtTheAddressIsTaken) {
  const rlk::testing::ScopedEnv none("HSA_OVERRIDE_GFX_VERSION", nullptr);
  const rlk::testing::TempFolder folder;
  const auto node = [&](const std::string& name, const std::string& text) { folder.file(name + "/properties", text); };
  node("0", "cpu_cores_count 64\ngfx_target_version 0\nlocation_id 0\ndomain 0\n");
  node("1", "gfx_target_version 90010\nlocation_id 49408\ndomain 0\n");
  node("2", "gfx_target_version 90402\nlocation_id 49408\ndomain 1\n");
  const std::string topology = folder.path();
  EXPECT_EQ(architecture("0000:c1:00.0", topology), "gfx90a");
  EXPECT_EQ(architecture("0001:c1:00.0", topology), "gfx942");
  EXPECT_EQ(architecture("0000:c2:00.0", topology), "");
  EXPECT_EQ(architecture("", topology), "");
  EXPECT_EQ(architecture("0000:c1:00.0", topology + "/none"), "");
  const rlk::testing::ScopedEnv other("HSA_OVERRIDE_GFX_VERSION", "10.3.0");
  EXPECT_EQ(architecture("0000:c1:00.0", topology), "gfx1030");
}

}  // namespace
}  // namespace rlk::rocm
