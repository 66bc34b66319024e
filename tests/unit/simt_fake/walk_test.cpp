// A SIMT plugin when any call of its runtime fails (framework/walk.hpp): devices, streams, events and graphs, then the
// operator add, whose kernels are loaded, and compiled where a runtime compiler does that. RLK_TEST_PREFIX: of the
// simulated runtime's variables.
#include "framework/walk.hpp"

namespace {

class Walk : public rlk::test::PluginFixture {
protected:
  void walk(int code, rlk_status expected) {
    rlk::test::walk(*api, instance, {&graphs(), false}, RLK_TEST_PREFIX "FAIL", code, expected);
    rlk::test::walk(*api, instance, {nullptr, true}, RLK_TEST_PREFIX "FAIL", code, expected);
    rlk::test::walk(*api, instance, {&graphs(), true}, RLK_TEST_PREFIX "FAIL", code, expected);
  }
};

TEST_F(Walk, EveryCallThatRunsOutOfMemorySaysSo) {
  walk(2, RLK_OUT_OF_MEMORY);
}
TEST_F(Walk, AfterALostDeviceEveryEntrySaysSo) {
  walk(719, RLK_DEVICE_LOST);
}
TEST_F(Walk, EveryCommandThatFailsOnItsStreamLosesTheDevice) {
  rlk::test::walk_commands(*api, instance, {&graphs(), false}, RLK_TEST_PREFIX "ASYNC_FAIL", 700, RLK_DEVICE_LOST);
  rlk::test::walk_commands(*api, instance, {nullptr, true}, RLK_TEST_PREFIX "ASYNC_FAIL", 700, RLK_DEVICE_LOST);
}
#if defined(RLK_TEST_MACA)
TEST_F(Walk, CodesOfMacasOwnMeanTheSame) {
  walk(10007, RLK_OUT_OF_MEMORY);
  walk(10030, RLK_DEVICE_LOST);
}
#endif

}  // namespace
