// What does the simulated AscendCL do with a stream that captures, and what does it forbid beside one?
#include <cstdlib>
#include <functional>
#include <thread>

#include "fixture.hpp"

namespace {

constexpr int32_t kGlobal = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, kThreadLocal = ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
constexpr int32_t kRelaxed = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;

class Captures : public ascend_fake::Fixture {
protected:
  void begin(int32_t mode = kThreadLocal) { ASSERT_EQ(aclmdlRICaptureBegin(stream, mode), ACL_SUCCESS); }
  int end() {
    const int code = aclmdlRICaptureEnd(stream, &model);
    if (code != ACL_SUCCESS) model = nullptr;
    return code;
  }
  int status_of(aclrtStream asked) {
    int32_t status = -1;
    aclmdlRI none = nullptr;
    EXPECT_EQ(aclmdlRICaptureGetInfo(asked, &status, &none), ACL_SUCCESS);
    return status;
  }
  // Forbidden in a capture, which it breaks.
  void breaks(int expected, const std::function<int()>& call, int32_t mode = kThreadLocal) {
    begin(mode);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(status_of(stream), ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(end(), ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(status_of(stream), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  }
  // Refused, and the capture goes on.
  void refuses(int expected, const std::function<int()>& call) {
    begin();
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(status_of(stream), ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
    ASSERT_EQ(end(), ACL_SUCCESS);
    EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
  }
  uint8_t byte_at(void* memory) {
    uint8_t value = 0;
    EXPECT_EQ(aclrtMemcpy(&value, 1, memory, 1, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
    return value;
  }
  aclrtEvent event(bool ex) {
    aclrtEvent made = nullptr;
    EXPECT_EQ((ex ? aclrtCreateEventExWithFlag : aclrtCreateEventWithFlag)(&made, 3), ACL_SUCCESS);
    return made;
  }
  aclmdlRI model = nullptr;
};

TEST_F(Captures, record_and_run_when_launched) {
  void* memory = allocate(64);
  ASSERT_EQ(aclrtMemset(memory, 64, 1, 64), ACL_SUCCESS);
  begin();
  EXPECT_EQ(aclrtMemsetAsync(memory, 64, 7, 64, stream), ACL_SUCCESS);
  ASSERT_EQ(end(), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(byte_at(memory), 1);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(aclrtMemset(memory, 64, 1, 64), ACL_SUCCESS);
    ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), ACL_SUCCESS);
    ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
    EXPECT_EQ(byte_at(memory), 7);
  }
  EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
}

TEST_F(Captures, questions_break_them) {
  int32_t status = 0;
  breaks(ACL_ERROR_RT_STREAM_CAPTURED, [&] { return aclrtSynchronizeStream(stream); });
  breaks(ACL_ERROR_RT_STREAM_CAPTURED, [&] { return aclrtStreamQuery(stream, &status); });
  breaks(ACL_ERROR_RT_STREAM_CAPTURED, [] { return aclrtSynchronizeDevice(); });
}

TEST_F(Captures, what_is_done_at_once_breaks_them_but_in_relaxed_mode) {
  void* memory = allocate(64);
  uint8_t value = 0;
  const auto fill = [&] { return aclrtMemset(memory, 64, 1, 64); };
  const auto copy = [&] { return aclrtMemcpy(&value, 1, memory, 1, ACL_MEMCPY_DEVICE_TO_HOST); };
  const auto elsewhere = [](const std::function<int()>& call, int32_t exchanged) {
    int code = -1;
    std::thread([&] {
      EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
      int32_t mode = exchanged;
      EXPECT_EQ(aclmdlRICaptureThreadExchangeMode(&mode), ACL_SUCCESS);
      EXPECT_EQ(mode, kGlobal) << "as a thread begins";
      code = call();
    }).join();
    return code;
  };
  breaks(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, fill);
  breaks(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, copy, kGlobal);
  breaks(
      ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, [&] { return elsewhere(fill, kGlobal); }, kGlobal);
  refuses(ACL_SUCCESS, [&] { return elsewhere(fill, kGlobal); });  // of the thread alone
  refuses(ACL_SUCCESS, [&] {
    int32_t mode = kRelaxed;
    EXPECT_EQ(aclmdlRICaptureThreadExchangeMode(&mode), ACL_SUCCESS);
    const int code = fill() + copy();
    EXPECT_EQ(aclmdlRICaptureThreadExchangeMode(&mode), ACL_SUCCESS);
    EXPECT_EQ(mode, kRelaxed);
    return code;
  });
  begin(kGlobal);
  EXPECT_EQ(elsewhere(fill, kRelaxed), ACL_SUCCESS);
  EXPECT_EQ(elsewhere(fill, kThreadLocal), ACL_SUCCESS);
  ASSERT_EQ(end(), ACL_SUCCESS);
  EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
  begin(kRelaxed);
  EXPECT_EQ(fill(), ACL_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(end(), ACL_SUCCESS) << "on any thread";
  }).join();
  EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
  EXPECT_EQ(fill(), ACL_SUCCESS);
}

TEST_F(Captures, are_begun_and_ended_in_pairs_by_one_stream_and_thread) {
  EXPECT_EQ(aclmdlRICaptureBegin(nullptr, kThreadLocal), ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(aclmdlRICaptureBegin(stream, 3), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(end(), ACL_ERROR_RT_STREAM_NOT_CAPTURED);
  refuses(ACL_ERROR_RT_STREAM_CAPTURED, [&] { return aclmdlRICaptureBegin(stream, kThreadLocal); });
  refuses(ACL_ERROR_RT_STREAM_CAPTURED, [&] { return aclrtDestroyStream(stream); });
  begin();
  std::thread([&] {
    EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    EXPECT_EQ(end(), ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  EXPECT_EQ(status_of(stream), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
}

TEST_F(Captures, take_ex_events_of_their_own) {
  aclrtEvent plain = event(false), ex = event(true), before = event(true);
  int32_t status = 0;
  ASSERT_EQ(aclrtRecordEvent(before, stream), ACL_SUCCESS);
  refuses(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, [&] { return aclrtRecordEvent(plain, stream); });
  refuses(ACL_ERROR_RT_CAPTURE_DEPENDENCY, [&] { return aclrtStreamWaitEvent(stream, before); });
  begin();
  EXPECT_EQ(aclrtRecordEvent(ex, stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtQueryEventStatus(ex, &status), ACL_ERROR_RT_EVENT_CAPTURED);
  EXPECT_EQ(aclrtSynchronizeEvent(ex), ACL_ERROR_RT_EVENT_CAPTURED);
  ASSERT_EQ(end(), ACL_SUCCESS);
  EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
  for (aclrtEvent made : {plain, ex, before}) EXPECT_EQ(aclrtDestroyEvent(made), ACL_SUCCESS);
}

TEST_F(Captures, streams_that_join_must_come_back) {
  aclrtStream side = nullptr, third = nullptr;
  ASSERT_EQ(aclrtCreateStream(&side), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateStream(&third), ACL_SUCCESS);
  aclrtEvent events[] = {event(true), event(true), event(true), event(true)};
  void* memory = allocate(4);
  const auto hand = [&](aclrtStream from, aclrtStream to, int with) {
    EXPECT_EQ(aclrtRecordEvent(events[with], from), ACL_SUCCESS);
    EXPECT_EQ(aclrtStreamWaitEvent(to, events[with]), ACL_SUCCESS);
  };
  // 0: it stays away; 1: it goes on after it has come back; 2: by way of another stream.
  for (const int way : {0, 1, 2}) {
    begin();
    hand(stream, side, 0);
    EXPECT_EQ(status_of(side), ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(aclmdlRICaptureEnd(side, &model), ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED);
    if (way == 2) {
      hand(side, third, 1);
      EXPECT_EQ(aclrtMemsetAsync(memory, 4, 5, 4, third), ACL_SUCCESS);
      hand(third, side, 2);
    }
    if (way != 0) hand(side, stream, 3);
    if (way == 1) {
      EXPECT_EQ(aclrtMemsetAsync(memory, 4, 5, 4, side), ACL_SUCCESS);
    }
    EXPECT_EQ(end(), way == 2 ? ACL_SUCCESS : ACL_ERROR_RT_STREAM_UNJOINED) << way;
    EXPECT_EQ(status_of(side), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  }
  ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(byte_at(memory), 5);
  EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
  for (aclrtEvent made : events) EXPECT_EQ(aclrtDestroyEvent(made), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(side), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(third), ACL_SUCCESS);
}

TEST_F(Captures, models_run_when_they_are_whole_and_are_destroyed_when_they_do_not_run) {
  setenv("RLK_FAKE_ASCEND_DELAY_US", "20000", 1);
  aclrtStream slow = nullptr;
  ASSERT_EQ(aclrtCreateStream(&slow), ACL_SUCCESS);
  unsetenv("RLK_FAKE_ASCEND_DELAY_US");
  begin();
  int32_t status = 0;
  ASSERT_EQ(aclmdlRICaptureGetInfo(stream, &status, &model), ACL_SUCCESS);
  EXPECT_EQ(aclmdlRIExecuteAsync(model, slow), ACL_ERROR_RT_MODEL_CAPTURED);
  EXPECT_EQ(aclmdlRIDestroy(model), ACL_ERROR_RT_MODEL_CAPTURED);
  const aclmdlRI told = model;
  ASSERT_EQ(end(), ACL_SUCCESS);
  EXPECT_EQ(model, told);
  begin();
  EXPECT_EQ(aclmdlRIExecuteAsync(told, stream), ACL_ERROR_RT_STREAM_CAPTURED);
  ASSERT_EQ(end(), ACL_SUCCESS);
  EXPECT_EQ(aclmdlRIDestroy(model), ACL_SUCCESS);
  ASSERT_EQ(aclmdlRIExecuteAsync(told, slow), ACL_SUCCESS);
  EXPECT_EQ(aclmdlRIDestroy(told), ACL_ERROR_RT_MODEL_RUNNING);
  ASSERT_EQ(aclrtSynchronizeStream(slow), ACL_SUCCESS);
  EXPECT_EQ(aclmdlRIDestroy(told), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(slow), ACL_SUCCESS);
}

TEST_F(Captures, an_operator_in_a_broken_one_has_a_runtime_error) {
  void* memory = nullptr;
  aclTensor* target = empty_like<float>({4}, &memory);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnInplaceZeroGetWorkspaceSize(target, &bytes, &executor), ACL_SUCCESS);
  begin();
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_ERROR_RT_STREAM_CAPTURED);
  EXPECT_EQ(aclnnInplaceZero(allocate(bytes), bytes, executor, stream), ACLNN_ERR_RUNTIME_ERROR);
  EXPECT_EQ(end(), ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(fakeAscendLiveExecutors(), 0u) << "consumed all the same";
}

TEST_F(Captures, hold_their_memory) {
  EXPECT_DEATH(
      {
        void* memory = allocate(64);
        aclmdlRICaptureBegin(stream, kThreadLocal);
        aclrtMemsetAsync(memory, 64, 7, 64, stream);
        aclmdlRICaptureEnd(stream, &model);
        aclrtFree(memory);
      },
      "FREED_IN_USE.*live graph");
}

}  // namespace
