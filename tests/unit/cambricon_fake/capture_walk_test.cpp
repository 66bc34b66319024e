// A captured graph of the Cambricon plugin when any call of CNRT, or any command of a queue, fails
// (framework/walk.hpp).
#include "framework/walk.hpp"

namespace {

class CaptureWalk : public rlk::test::PluginFixture {
protected:
  void walk(int code, rlk_status expected) {
    for (const bool has_operator : {false, true})
      rlk::test::walk(*api, instance, {&graphs(), has_operator}, "RLK_FAKE_CNRT_FAIL", code, expected);
  }
};

TEST_F(CaptureWalk, EveryCallThatRunsOutOfMemorySaysSo) {
  walk(100100, RLK_OUT_OF_MEMORY);
}
TEST_F(CaptureWalk, AfterALostDeviceEveryEntrySaysSo) {
  walk(100132, RLK_DEVICE_LOST);
}
TEST_F(CaptureWalk, AnyOtherCodeIsAnErrorOfTheBackend) {
  walk(632015, RLK_BACKEND_ERROR);
}
TEST_F(CaptureWalk, EveryCommandThatFailsOnItsQueueSaysSo) {
  for (const bool has_operator : {false, true})
    rlk::test::walk_commands(*api, instance, {&graphs(), has_operator}, "RLK_FAKE_CNRT_ASYNC_FAIL", 100132,
                             RLK_DEVICE_LOST);
}

}  // namespace
