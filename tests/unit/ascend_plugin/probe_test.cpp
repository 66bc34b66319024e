// Does the plugin explain what it found? Each answer in a process of its own, for the libraries are opened once.
#include <cstdlib>

#include "plugin.hpp"

namespace {

// Runs in a child: prints reason code, reason and evidence, and exits 0.
[[noreturn]] void tell(const char* home) {
  setenv("ASCEND_HOME_PATH", home, 1);
  unsetenv("ASCEND_TOOLKIT_HOME");
  ascend_plugin::Loaded plugin;
  std::vector<std::string> seen;
  const rlk_probe_result result = plugin.probe(&seen);
  uint32_t devices = 99;
  plugin.api->device_count(plugin.instance, &devices, nullptr);
  fprintf(stderr, "verdict=%d devices=%u code=%s reason=%s hint=%s fingerprint=%s", result.verdict, devices,
          result.reason_code, result.reason, result.hint, result.runtime_fingerprint);
  for (const std::string& item : seen) fprintf(stderr, " [%s]", item.c_str());
  _exit(0);
}

class Probe : public ::testing::Test {
protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(Probe, without_the_libraries_names_them_all) {
  EXPECT_EXIT(tell("/nonexistent"), ::testing::ExitedWithCode(0),
              "verdict=3 devices=0 code=RUNTIME_LIBRARY_MISSING reason=cannot open libascendcl.so, libnnopbase.so, "
              "libopapi.so or libopapi_math.so hint=install.*set_env.sh");
}

TEST_F(Probe, with_a_runtime_that_lacks_functions_names_them) {
  EXPECT_EXIT(tell(EMPTY_HOME), ::testing::ExitedWithCode(0),
              "verdict=3 devices=0 code=RUNTIME_SYMBOL_MISSING reason=.*lacks aclInit, aclrtGetDeviceCount, .*"
              "\\[runtime_symbols=.*aclSetOutputTensorAddr\\]");
}

TEST_F(Probe, with_the_runtime_is_mine_and_says_why) {
  EXPECT_EXIT(tell(FAKE_HOME), ::testing::ExitedWithCode(0),
              "verdict=1 devices=1 code= reason= hint= fingerprint=acl 1.14.0 .*Ascend910B4.*"
              "\\[runtime_library=.*libascendcl.so\\].*\\[device_count=1\\].*\\[device_name=Ascend910B4\\]");
}

TEST_F(Probe, without_devices_is_absent) {
  setenv("RLK_FAKE_ASCEND_DEVICES", "0", 1);
  EXPECT_EXIT(tell(FAKE_HOME), ::testing::ExitedWithCode(0), "verdict=3 devices=0 code=NO_DEVICE reason=.*207004");
  unsetenv("RLK_FAKE_ASCEND_DEVICES");
}

TEST_F(Probe, of_a_device_that_is_no_ascend_is_not_mine) {
  setenv("RLK_FAKE_ASCEND_SOC", "Other1", 1);
  EXPECT_EXIT(tell(FAKE_HOME), ::testing::ExitedWithCode(0), "verdict=2 devices=1 code=UNKNOWN_DEVICE");
  unsetenv("RLK_FAKE_ASCEND_SOC");
}

TEST_F(Probe, with_a_runtime_that_somebody_else_initialised) {
  setenv("RLK_FAKE_ASCEND_PREINITIALIZED", "1", 1);
  EXPECT_EXIT(tell(FAKE_HOME), ::testing::ExitedWithCode(0), "verdict=1 devices=1");
  unsetenv("RLK_FAKE_ASCEND_PREINITIALIZED");
}

TEST_F(Probe, with_a_runtime_that_does_not_start) {
  setenv("RLK_FAKE_ASCEND_FAIL", "aclInit:0:500004", 1);
  EXPECT_EXIT(tell(FAKE_HOME), ::testing::ExitedWithCode(0),
              "verdict=3 devices=0 code=RUNTIME_INIT_FAILED reason=aclInit failed with 500004");
  unsetenv("RLK_FAKE_ASCEND_FAIL");
}

}  // namespace
