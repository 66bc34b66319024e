// RLK_REQUIRE names a backend that is not here: starting fails loudly. A process of its own, because plugins are looked
// for once per process.
#include <gtest/gtest.h>
#include <rlk/rlk.h>

#include <cstdlib>
#include <string>

TEST(Require, ABackendThatIsNotHereFailsTheStart) {
  setenv("RLK_REQUIRE", "cpu,qpu", 1);
  rlk_runtime* runtime = nullptr;
  rlk_error error = RLK_ERROR_INIT;
  EXPECT_EQ(rlk_runtime_create(nullptr, &runtime, &error), RLK_NOT_FOUND);
  EXPECT_EQ(runtime, nullptr);
  for (const char* part : {"RLK_REQUIRE", "qpu", "RLK_ADD_PLUGIN_PATH"}) {
    EXPECT_NE(std::string(error.text).find(part), std::string::npos) << error.text;
  }
}
