// Is the simulated driver as strict about contexts as it says? One seeded violation per rule; the others are those of
// every simulated runtime (tests/unit/simt_fake).
#include "fixture.hpp"

namespace {

using namespace cuda_plugin;

class ContextsTest : public testing::Test {
protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ContextsTest, NothingComesBeforeTheDriverIsInitialized) {
  void* context = nullptr;
  EXPECT_DEATH(cuDevicePrimaryCtxRetain(&context, 0), "NOT_INITIALIZED: cuDevicePrimaryCtxRetain");
}

TEST_F(ContextsTest, AThreadNeedsAContext) {
  void* memory = nullptr;
  EXPECT_DEATH(
      {
        cuInit(0);
        cuMemAlloc_v2(&memory, 64);
      },
      "NO_DEVICE_ON_THREAD: cuMemAlloc_v2");
}

TEST_F(ContextsTest, AContextThatNobodyRetainsIsGone) {
  void* context = nullptr;
  EXPECT_DEATH(
      {
        cuInit(0);
        cuDevicePrimaryCtxRetain(&context, 0);
        cuDevicePrimaryCtxRelease_v2(0);
        cuCtxPushCurrent_v2(context);
      },
      "DESTROYED_HANDLE: cuCtxPushCurrent_v2: a destroyed context");
}

TEST_F(ContextsTest, AStreamIsGoneWithItsContext) {
  void *context = nullptr, *stream = nullptr;
  EXPECT_DEATH(
      {
        cuInit(0);
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxPushCurrent_v2(context);
        cuStreamCreateWithPriority(&stream, 1, 0);
        cuDevicePrimaryCtxRelease_v2(0);
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxPushCurrent_v2(context);
        cuStreamDestroy_v2(stream);
      },
      "DESTROYED_HANDLE: cuStreamDestroy_v2: a destroyed stream");
}

TEST_F(ContextsTest, AStreamOfAnotherContextIsRefused) {
  const Variable devices("RLK_FAKE_CUDA_DEVICES", "2");
  void *first = nullptr, *second = nullptr, *stream = nullptr;
  EXPECT_DEATH(
      {
        cuInit(0);
        cuDevicePrimaryCtxRetain(&first, 0);
        cuDevicePrimaryCtxRetain(&second, 1);
        cuCtxPushCurrent_v2(first);
        cuStreamCreateWithPriority(&stream, 1, 0);
        cuCtxPushCurrent_v2(second);
        cuStreamDestroy_v2(stream);
      },
      "WRONG_DEVICE: cuStreamDestroy_v2");
}

}  // namespace
