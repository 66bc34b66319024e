// What the simulated AscendCL adds to its calls' own rules: contexts that end with what is in them, work that never
// begins, events of streams that have failed, and rules whose breaking returns.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "fixture.hpp"

namespace {

using Contexts = ascend_fake::Fixture;

aclrtStream slow_stream(const char* us) {
  setenv("RLK_FAKE_ASCEND_DELAY_US", us, 1);
  aclrtStream stream = nullptr;
  EXPECT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  unsetenv("RLK_FAKE_ASCEND_DELAY_US");
  return stream;
}

TEST_F(Contexts, a_stream_and_an_event_are_gone_with_their_context) {
  aclrtContext other = nullptr;
  aclrtStream theirs = nullptr;
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateContext(&other, 0), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateStream(&theirs), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEvent(&event), ACL_SUCCESS);
  ASSERT_EQ(aclrtDestroyContext(other), ACL_SUCCESS);
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  EXPECT_DEATH(aclrtSynchronizeStream(theirs), "DESTROYED_HANDLE: aclrtSynchronizeStream: a destroyed stream");
  EXPECT_DEATH(aclrtRecordEvent(event, stream), "DESTROYED_HANDLE: aclrtRecordEvent: a destroyed event");
  EXPECT_DEATH(aclrtSetCurrentContext(other), "DESTROYED_HANDLE: aclrtSetCurrentContext: a destroyed context");
}

TEST_F(Contexts, a_thread_has_no_device_when_its_context_is_gone) {
  EXPECT_DEATH(
      {
        aclrtContext other = nullptr;
        aclrtCreateContext(&other, 0);
        aclrtDestroyContext(other);
        aclrtSynchronizeDevice();
      },
      "NO_DEVICE_ON_THREAD: aclrtSynchronizeDevice");
  EXPECT_DEATH(
      {
        aclrtContext other = nullptr;
        aclrtCreateContext(&other, 0);
        std::thread([other] { aclrtDestroyContext(other); }).join();
        aclrtSynchronizeDevice();
      },
      "DESTROYED_HANDLE: aclrtSynchronizeDevice on a thread whose context was destroyed");
}

TEST_F(Contexts, the_default_context_and_stream_are_nobodys_to_destroy) {
  aclrtContext own = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&own), ACL_SUCCESS);
  EXPECT_DEATH(aclrtDestroyContext(own), "DEFAULT_CONTEXT");
  EXPECT_DEATH(aclrtDestroyStream(nullptr), "INVALID_HANDLE: aclrtDestroyStream: not a stream");
}

// The second fill has not begun when its stream ends, and a thread that waits for the stream's event waits no longer.
TEST_F(Contexts, what_has_not_begun_never_does_when_its_stream_is_forced_to_end) {
  const aclrtStream slow = slow_stream("50000");
  void* memory = allocate(4);
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtMemset(memory, 4, 0, 4), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEvent(&event), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemsetAsync(memory, 4, 1, 4, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemsetAsync(memory, 4, 2, 4, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtRecordEvent(event, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtDestroyStreamForce(slow), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeEventWithTimeout(event, 10000), ACL_SUCCESS);
  EXPECT_LE(read<uint8_t>(memory, 1)[0], 1);
  EXPECT_EQ(aclrtDestroyEvent(event), ACL_SUCCESS);
}

TEST_F(Contexts, what_has_not_begun_never_does_when_its_context_ends) {
  void* memory = allocate(4);
  ASSERT_EQ(aclrtMemset(memory, 4, 0, 4), ACL_SUCCESS);
  aclrtContext other = nullptr;
  ASSERT_EQ(aclrtCreateContext(&other, 0), ACL_SUCCESS);
  const aclrtStream slow = slow_stream("50000");
  ASSERT_EQ(aclrtMemsetAsync(memory, 4, 1, 4, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemsetAsync(memory, 4, 2, 4, slow), ACL_SUCCESS);
  ASSERT_EQ(aclrtDestroyContext(other), ACL_SUCCESS);
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_LE(read<uint8_t>(memory, 1)[0], 1);
}

TEST_F(Contexts, the_event_of_a_failed_stream_carries_the_failure) {
  aclrtStream broken = nullptr;
  aclrtEvent event = nullptr;
  void* memory = allocate(4);
  ASSERT_EQ(aclrtCreateStream(&broken), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEvent(&event), ACL_SUCCESS);
  const std::string fault = "aclrtMemsetAsync:0:507035";
  setenv("RLK_FAKE_ASCEND_ASYNC_FAIL", fault.c_str(), 1);
  EXPECT_EQ(aclrtMemsetAsync(memory, 4, 1, 4, broken), ACL_SUCCESS);
  EXPECT_EQ(aclrtRecordEvent(event, broken), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 507035);
  unsetenv("RLK_FAKE_ASCEND_ASYNC_FAIL");
  EXPECT_EQ(aclrtSynchronizeStream(broken), 507035);
  const char* text = aclGetRecentErrMsg();
  ASSERT_NE(text, nullptr);
  EXPECT_NE(std::strstr(text, "an earlier command: aclrtMemsetAsync"), nullptr) << text;
  EXPECT_EQ(aclrtDestroyEvent(event), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(broken), ACL_SUCCESS);
}

TEST_F(Contexts, an_event_is_used_for_what_it_was_made) {
  aclrtEvent timed = nullptr, never = nullptr;
  int32_t status = 0;
  ASSERT_EQ(aclrtCreateEventWithFlag(&timed, ACL_EVENT_TIME_LINE), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateEvent(&never), ACL_SUCCESS);
  ASSERT_EQ(aclrtRecordEvent(timed, stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeEvent(timed), ACL_SUCCESS);
  EXPECT_DEATH(aclrtQueryEventStatus(timed, &status), "EVENT_FLAG: aclrtQueryEventStatus");
  EXPECT_DEATH(aclrtStreamWaitEvent(stream, timed), "EVENT_FLAG: aclrtStreamWaitEvent");
  EXPECT_DEATH(aclrtSynchronizeEvent(never), "EVENT_NOT_RECORDED: aclrtSynchronizeEvent");
  EXPECT_EQ(aclrtDestroyEvent(timed), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyEvent(never), ACL_SUCCESS);
}

TEST_F(Contexts, a_fill_states_its_capacity_too) {
  void* memory = allocate(64);
  EXPECT_DEATH(aclrtMemset(memory, 32, 0, 64), "DEST_MAX: aclrtMemset: 64 bytes into .* 32");
  EXPECT_DEATH(aclrtMemsetAsync(memory, 65, 0, 64, stream), "OUT_OF_BOUNDS: aclrtMemsetAsync");
}

TEST_F(Contexts, what_is_written_beside_pinned_memory_is_found_when_it_is_freed) {
  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 16), ACL_SUCCESS);
  EXPECT_DEATH(
      {
        static_cast<char*>(pinned)[16] = 1;
        aclrtFreeHost(pinned);
      },
      "WROTE_OUTSIDE: aclrtFreeHost");
  EXPECT_EQ(aclrtFreeHost(pinned), ACL_SUCCESS);
}

// Where a test asks for it, the call that breaks a rule returns, does nothing, and says which rule it was.
TEST_F(Contexts, a_broken_rule_may_return) {
  void* memory = allocate(64);
  const aclrtStream slow = slow_stream("20000");
  setenv("RLK_FAKE_ASCEND_ON_VIOLATION", "report", 1);
  const uint64_t before = fakeAscendViolationCount();
  EXPECT_EQ(aclrtFree(static_cast<char*>(memory) + 32), ACL_ERROR_RT_PARAM_INVALID);
  const char* text = aclGetRecentErrMsg();
  EXPECT_NE(text != nullptr ? std::strstr(text, "INVALID_FREE") : nullptr, nullptr);
  ASSERT_EQ(aclrtMemsetAsync(memory, 64, 7, 64, slow), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(slow), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_NE(std::string(fakeAscendLastViolation()).find("STREAM_BUSY"), std::string::npos);
  EXPECT_EQ(aclrtFree(memory), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_NE(std::string(fakeAscendLastViolation()).find("FREED_IN_USE"), std::string::npos);
  EXPECT_EQ(fakeAscendViolationCount(), before + 3);
  unsetenv("RLK_FAKE_ASCEND_ON_VIOLATION");
  EXPECT_EQ(aclrtSynchronizeStream(slow), ACL_SUCCESS);
  EXPECT_EQ(read<uint8_t>(memory, 64), std::vector<uint8_t>(64, 7));
  EXPECT_EQ(aclrtDestroyStream(slow), ACL_SUCCESS);
}

}  // namespace
