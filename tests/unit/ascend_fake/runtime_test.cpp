// Does the simulated AscendCL behave as documented when it is used correctly?
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "fixture.hpp"

namespace {

// A stream created while commands take `us` microseconds each.
aclrtStream slow_stream(const char* us) {
  setenv("RLK_FAKE_ASCEND_DELAY_US", us, 1);
  aclrtStream stream = nullptr;
  aclrtCreateStream(&stream);
  unsetenv("RLK_FAKE_ASCEND_DELAY_US");
  return stream;
}

using Runtime = ascend_fake::Fixture;

TEST(RuntimeDevices, none) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("RLK_FAKE_ASCEND_DEVICES", "0", 1);
        uint32_t count = 9;
        const bool ok = aclInit(nullptr) == ACL_SUCCESS && aclrtGetDeviceCount(&count) == ACL_ERROR_RT_NO_DEVICE &&
                        count == 0 && aclrtSetDevice(0) == ACL_ERROR_RT_INVALID_DEVICEID;
        std::_Exit(ok ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(Runtime, device_count_and_names) {
  uint32_t count = 0;
  EXPECT_EQ(aclrtGetDeviceCount(&count), ACL_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B4");
  int64_t cores = 0;
  EXPECT_EQ(aclGetDeviceCapability(0, 0, &cores), ACL_SUCCESS);
  EXPECT_EQ(cores, 20);
}

TEST_F(Runtime, error_text_is_of_the_thread_and_read_once) {
  EXPECT_EQ(aclrtSetDevice(7), ACL_ERROR_RT_INVALID_DEVICEID);
  const char* text = aclGetRecentErrMsg();
  ASSERT_NE(text, nullptr);
  EXPECT_NE(std::strstr(text, "device 7 of 1"), nullptr);
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
}

TEST_F(Runtime, memory_is_poisoned_and_counted) {
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total), ACL_SUCCESS);
  void* memory = allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 512, 0u);
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), ACL_SUCCESS);
  EXPECT_EQ(before - after, 1000u);
  EXPECT_EQ(read<uint8_t>(memory, 1000), std::vector<uint8_t>(1000, 0xff));
}

TEST_F(Runtime, exhausted_memory_is_a_status) {
  void* memory = nullptr;
  EXPECT_EQ(aclrtMalloc(&memory, size_t{1} << 50, 0), ACL_ERROR_RT_MEMORY_ALLOCATION);
  EXPECT_EQ(aclrtMalloc(&memory, 0, 0), ACL_ERROR_RT_PARAM_INVALID);
}

TEST_F(Runtime, streams_work_behind_the_caller) {
  const aclrtStream slow = slow_stream("100000");
  void* memory = allocate(4);
  ASSERT_EQ(aclrtMemset(memory, 4, 0, 4), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemsetAsync(memory, 4, 7, 4, slow), ACL_SUCCESS);
  int32_t status = -1;
  EXPECT_EQ(aclrtStreamQuery(slow, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(slow, 1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(aclrtSynchronizeStream(slow), ACL_SUCCESS);
  EXPECT_EQ(aclrtStreamQuery(slow, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  EXPECT_EQ(read<uint8_t>(memory, 1)[0], 7);
  EXPECT_EQ(aclrtDestroyStream(slow), ACL_SUCCESS);
}

TEST_F(Runtime, events_order_two_streams_and_measure_time) {
  const aclrtStream slow = slow_stream("50000");
  void* memory = allocate(4);
  aclrtEvent start = nullptr;
  aclrtEvent end = nullptr;
  ASSERT_EQ(aclrtCreateEventExWithFlag(&start, ACL_EVENT_TIME_LINE), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEventExWithFlag(&end, ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE),
            ACL_SUCCESS);
  ASSERT_EQ(aclrtRecordEvent(start, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemsetAsync(memory, 4, 1, 4, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtRecordEvent(end, slow), ACL_SUCCESS);
  int32_t status = -1;
  EXPECT_EQ(aclrtQueryEventStatus(end, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_EVENT_RECORDED_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeEventWithTimeout(end, 1), ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
  ASSERT_EQ(aclrtStreamWaitEvent(stream, end), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemsetAsync(memory, 4, 2, 4, stream), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(read<uint8_t>(memory, 1)[0], 2);
  EXPECT_EQ(aclrtQueryEventStatus(end, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
  float ms = 0;
  EXPECT_EQ(aclrtEventElapsedTime(&ms, start, end), ACL_SUCCESS);
  EXPECT_GE(ms, 90.0F);
  EXPECT_EQ(aclrtSynchronizeStream(slow), ACL_SUCCESS);
  aclrtDestroyEvent(start);
  aclrtDestroyEvent(end);
  aclrtDestroyStream(slow);
}

TEST_F(Runtime, pinned_copies_are_asynchronous_and_pageable_ones_are_not) {
  const aclrtStream slow = slow_stream("50000");
  void* memory = allocate(4);
  ASSERT_EQ(aclrtMemset(memory, 4, 5, 4), ACL_SUCCESS);
  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 4), ACL_SUCCESS);
  int32_t status = -1;
  ASSERT_EQ(aclrtMemcpyAsync(pinned, 4, memory, 4, ACL_MEMCPY_DEVICE_TO_HOST, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtStreamQuery(slow, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  char pageable = 0;
  ASSERT_EQ(aclrtMemcpyAsync(&pageable, 1, memory, 1, ACL_MEMCPY_DEVICE_TO_HOST, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtStreamQuery(slow, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  EXPECT_EQ(pageable, 5);
  EXPECT_EQ(static_cast<char*>(pinned)[0], 5);
  EXPECT_EQ(aclrtFreeHost(pinned), ACL_SUCCESS);
  aclrtDestroyStream(slow);
}

TEST_F(Runtime, callbacks_run_on_the_subscribed_thread_and_block_the_stream) {
  std::atomic<bool> ready{false};
  std::atomic<uint64_t> thread_id{0};
  std::atomic<bool> called{false};
  std::thread reporter([&] {
    thread_id = static_cast<uint64_t>(pthread_self());
    ready = true;
    while (!called) aclrtProcessReport(100);
  });
  while (!ready) std::this_thread::yield();
  ASSERT_EQ(aclrtSubscribeReport(thread_id, stream), ACL_SUCCESS);
  ASSERT_EQ(aclrtLaunchCallback([](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &called,
                                ACL_CALLBACK_BLOCK, stream),
            ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_TRUE(called);
  reporter.join();
  EXPECT_EQ(aclrtUnSubscribeReport(thread_id, stream), ACL_SUCCESS);
}

TEST_F(Runtime, host_functions_exist_in_9_only) {
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "aclrtLaunchHostFunc"), nullptr);
  setenv("RLK_FAKE_ASCEND_VERSION", "9.0", 1);
  const auto launch = reinterpret_cast<aclrtLaunchHostFuncType>(dlsym(RTLD_DEFAULT, "aclrtLaunchHostFunc"));
  unsetenv("RLK_FAKE_ASCEND_VERSION");
  ASSERT_NE(launch, nullptr);
  std::atomic<int> calls{0};
  EXPECT_EQ(launch(
                stream, [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); }, &calls),
            ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(calls, 1);
}

TEST_F(Runtime, injected_failures_hit_the_named_call) {
  const std::string next = std::to_string(fakeAscendCallCount("aclrtMalloc") + 2);
  setenv("RLK_FAKE_ASCEND_FAIL", ("aclrtMalloc:" + next + ":207018").c_str(), 1);
  void* memory = nullptr;
  EXPECT_EQ(aclrtMalloc(&memory, 64, 0), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
  EXPECT_EQ(aclrtMalloc(&memory, 64, 0), 207018);
  unsetenv("RLK_FAKE_ASCEND_FAIL");
}

TEST_F(Runtime, injected_asynchronous_failure_stays_on_its_stream) {
  aclrtStream broken = nullptr;
  ASSERT_EQ(aclrtCreateStream(&broken), ACL_SUCCESS);
  void* memory = nullptr;
  aclTensor* target = empty_like<float>({4}, &memory);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnInplaceZeroGetWorkspaceSize(target, &bytes, &executor), ACL_SUCCESS);
  setenv("RLK_FAKE_ASCEND_ASYNC_FAIL", "aclnnInplaceZero:0:507035", 1);
  EXPECT_EQ(aclnnInplaceZero(allocate(bytes), bytes, executor, broken), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(broken), 507035);
  unsetenv("RLK_FAKE_ASCEND_ASYNC_FAIL");
  EXPECT_EQ(aclrtSynchronizeStream(broken), 507035);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(broken), ACL_SUCCESS);
}

TEST(RuntimeLog, names_every_call) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = ::testing::TempDir() + "fake_ascend_log_test.txt";
  std::remove(path.c_str());
  EXPECT_EXIT(
      {
        setenv("RLK_FAKE_ASCEND_LOG", path.c_str(), 1);
        aclInit(nullptr);
        aclrtSetDevice(0);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
  std::ifstream log(path);
  const std::string text((std::istreambuf_iterator<char>(log)), {});
  EXPECT_EQ(text, "aclInit\naclrtSetDevice\n");
}

}  // namespace
