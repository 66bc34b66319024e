// Calls of operators on the simulated Ascend device.
#pragma once

#include <cstdlib>

#include "acl_api.h"
#include "framework/device_calls.hpp"
#include "plugin.hpp"

namespace ascend_plugin {

// Where the plugin finds the runtime; libascendcl.so is linked to the test, and loaded once.
[[maybe_unused]] inline const bool home_is_set = setenv("ASCEND_HOME_PATH", FAKE_HOME, 1) == 0;

using rlk::test::Call;
using rlk::test::kBf16;
using rlk::test::kF16;
using rlk::test::kF32;
using rlk::test::kI32;
using rlk::test::kI64;
using rlk::test::kU8;
using rlk::test::Tensor;

struct Acl {
  static void upload(void* to, const void* from, size_t bytes) {
    EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemcpy(to, bytes, from, bytes, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  }
  static void download(void* to, const void* from, size_t bytes) {
    EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(aclrtMemcpy(to, bytes, from, bytes, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
  }
  static void expect_nothing_left() {
    EXPECT_EQ(fakeAscendLiveExecutors(), 0u);
    EXPECT_EQ(fakeAscendLiveDescriptors(), 0u);
    EXPECT_EQ(fakeAscendCallCount("aclFinalize"), 0u);
  }

  // Captures by an embedder, and their graphs.
  static constexpr const char* kDelay = "RLK_FAKE_ASCEND_DELAY_US";
  using Graph = aclmdlRI;
  static void begin(void* stream) {
    EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), ACL_SUCCESS);
  }
  static Graph end(void* stream) {
    Graph model = nullptr;
    EXPECT_EQ(aclmdlRICaptureEnd(stream, &model), ACL_SUCCESS);
    return model;
  }
  static void run(Graph model, void* stream) {  // to its end
    EXPECT_EQ(aclmdlRIExecuteAsync(model, stream), ACL_SUCCESS);
    EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  }
  static void destroy(Graph model) { EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS); }
  // Part of what capture_retain says where the end of an embedder's capture is not told.
  static constexpr const char* kNoEnd = "since 9";
};
using Fixture = rlk::test::CallFixture<Acl>;

}  // namespace ascend_plugin
