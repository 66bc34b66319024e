// The Ascend plugin when any call of CANN fails (framework/walk.hpp): devices, streams and events, a captured graph,
// then the operator add in both of its phases, captured and not.
#include "framework/walk.hpp"
#include "acl_api.h"

namespace {

class Walk : public rlk::test::PluginFixture {
protected:
  static void SetUpTestSuite() { setenv("ASCEND_HOME_PATH", FAKE_HOME, 1); }

  void walk(int code, rlk_status expected) {
    // What was described before the failure is given back, unless the device is lost and takes nothing back. Of a tour
    // that was taken to its end, it is the giving back that failed.
    static uint64_t live = 0;
    live = fakeAscendLiveDescriptors() + fakeAscendLiveExecutors();
    const auto after = [](uint64_t n, bool done) {
      const uint64_t seen = fakeAscendLiveDescriptors() + fakeAscendLiveExecutors();
      if (done) live = seen;
      EXPECT_EQ(seen, live) << n;
    };
    rlk::test::walk(*api, instance, {nullptr, false}, "RLK_FAKE_ASCEND_FAIL", code, expected);
    rlk::test::walk(*api, instance, {&graphs(), false}, "RLK_FAKE_ASCEND_FAIL", code, expected);
    for (const rlk_graph_api* captured : {static_cast<const rlk_graph_api*>(nullptr), &graphs()}) {
      rlk::test::walk(*api, instance, {captured, true}, "RLK_FAKE_ASCEND_FAIL", code, expected,
                      expected == RLK_DEVICE_LOST ? nullptr : +after);
    }
  }
};

TEST_F(Walk, EveryCallThatRunsOutOfMemorySaysSo) {
  walk(207001, RLK_OUT_OF_MEMORY);
}
TEST_F(Walk, AfterALostDeviceEveryEntrySaysSo) {
  walk(507010, RLK_DEVICE_LOST);
}
TEST_F(Walk, AnyOtherCodeIsAnErrorOfTheBackend) {
  walk(507899, RLK_BACKEND_ERROR);
}

// An exception of an AI core is its stream's alone; a device that stops answering is lost.
TEST_F(Walk, EveryCommandThatFailsOnItsStreamSaysSo) {
  for (const rlk::test::Tour::Kind kind :
       {rlk::test::Tour::Kind{nullptr, false}, {&graphs(), false}, {nullptr, true}, {&graphs(), true}}) {
    rlk::test::walk_commands(*api, instance, kind, "RLK_FAKE_ASCEND_ASYNC_FAIL", 507015, RLK_BACKEND_ERROR);
    rlk::test::walk_commands(*api, instance, kind, "RLK_FAKE_ASCEND_ASYNC_FAIL", 507010, RLK_DEVICE_LOST);
  }
}

}  // namespace
