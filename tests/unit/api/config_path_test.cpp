// A process reads its policy once. A process of its own, because the first runtime decides.
#include <gtest/gtest.h>
#include <rlk/rlk.h>

#include <string>

#include "framework/fs.hpp"

namespace rlk::test {
namespace {

rlk_status start(const char* config_path, std::string* text) {
  rlk_runtime_options options = RLK_RUNTIME_OPTIONS_INIT;
  options.config_path = config_path;
  rlk_runtime* runtime = nullptr;
  rlk_error error = RLK_ERROR_INIT;
  const rlk_status status = rlk_runtime_create(&options, &runtime, &error);
  *text = error.text;
  EXPECT_EQ(runtime != nullptr, status == RLK_OK);
  EXPECT_EQ(rlk_runtime_destroy(runtime, nullptr), RLK_OK);
  return status;
}

TEST(ConfigPath, OfALaterRuntimeIsThatOfTheFirstOrRefused) {
  const testing::TempFolder folder;
  const std::string first = folder.file("first.toml", "[dispatch]\nadd = \"cpu\"\n");
  std::string text;
  ASSERT_EQ(start(first.c_str(), &text), RLK_OK) << text;
  EXPECT_EQ(start(first.c_str(), &text), RLK_OK) << text;
  EXPECT_EQ(start(nullptr, &text), RLK_OK) << text;
  // One that is not there would be the caller's mistake, and one that is there would have no effect.
  EXPECT_EQ(start("/no/such/policy.toml", &text), RLK_UNSUPPORTED);
  EXPECT_NE(text.find("'" + first + "'"), std::string::npos) << text;
  EXPECT_NE(text.find("/no/such/policy.toml"), std::string::npos) << text;
}

}  // namespace
}  // namespace rlk::test
