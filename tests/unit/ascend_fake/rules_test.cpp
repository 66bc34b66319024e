// Does the simulator stop a program that breaks a rule of the Ascend runtime? One seeded violation per rule.
#include <cstdlib>
#include <thread>

#include "fixture.hpp"

namespace {

using Rules = ascend_fake::Fixture;

TEST(RulesBeforeInit, call_without_init) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(aclrtSetDevice(0), "NOT_INITIALIZED: aclrtSetDevice");
}

TEST(RulesBeforeInit, finalize_by_one_who_found_it_initialised) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        setenv("RLK_FAKE_ASCEND_PREINITIALIZED", "1", 1);
        if (aclInit(nullptr) == ACL_ERROR_REPEAT_INITIALIZE) aclFinalize();
      },
      "FINALIZE_NOT_OWNER");
}

TEST_F(Rules, repeated_init_is_a_status) {
  EXPECT_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
}

TEST_F(Rules, call_after_finalize) {
  EXPECT_DEATH(
      {
        aclFinalize();
        aclFinalize();
      },
      "NOT_INITIALIZED: aclFinalize");
}

TEST_F(Rules, thread_without_device) {
  EXPECT_DEATH(std::thread([] {
                 void* memory = nullptr;
                 aclrtMalloc(&memory, 64, 0);
               }).join(),
               "NO_DEVICE_ON_THREAD: aclrtMalloc");
}

TEST_F(Rules, stream_of_another_context) {
  EXPECT_DEATH(
      {
        aclrtContext other = nullptr;
        aclrtCreateContext(&other, 0);
        aclrtSynchronizeStream(stream);
      },
      "STREAM_CONTEXT");
}

TEST_F(Rules, destroyed_stream) {
  EXPECT_DEATH(
      {
        aclrtStream gone = nullptr;
        aclrtCreateStream(&gone);
        aclrtDestroyStream(gone);
        aclrtSynchronizeStream(gone);
      },
      "DESTROYED_HANDLE: aclrtSynchronizeStream: a destroyed stream");
}

TEST_F(Rules, destroyed_event) {
  EXPECT_DEATH(
      {
        aclrtEvent gone = nullptr;
        aclrtCreateEvent(&gone);
        aclrtDestroyEvent(gone);
        aclrtRecordEvent(gone, stream);
      },
      "DESTROYED_HANDLE: aclrtRecordEvent: a destroyed event");
}

TEST_F(Rules, handle_of_another_kind) {
  EXPECT_DEATH(aclrtSynchronizeEvent(stream), "INVALID_HANDLE: aclrtSynchronizeEvent: not a event");
}

TEST_F(Rules, stream_destroyed_with_work_pending) {
  EXPECT_DEATH(
      {
        setenv("RLK_FAKE_ASCEND_DELAY_US", "200000", 1);
        aclrtStream busy = nullptr;
        aclrtCreateStream(&busy);
        void* memory = allocate(64);
        aclrtMemsetAsync(memory, 64, 0, 64, busy);
        aclrtDestroyStream(busy);
      },
      "STREAM_BUSY");
}

TEST_F(Rules, event_never_recorded) {
  EXPECT_DEATH(
      {
        aclrtEvent event = nullptr;
        aclrtCreateEvent(&event);
        aclrtStreamWaitEvent(stream, event);
      },
      "EVENT_NOT_RECORDED");
}

TEST_F(Rules, event_without_the_flag) {
  EXPECT_DEATH(
      {
        aclrtEvent event = nullptr;
        aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC);
        aclrtRecordEvent(event, stream);
        float ms = 0;
        aclrtEventElapsedTime(&ms, event, event);
      },
      "EVENT_FLAG");
}

TEST_F(Rules, callback_without_subscription) {
  EXPECT_DEATH(aclrtLaunchCallback([](void*) {}, nullptr, ACL_CALLBACK_BLOCK, stream), "NOT_SUBSCRIBED");
}

TEST_F(Rules, copy_larger_than_the_destination) {
  const std::vector<char> host(64);
  void* memory = allocate(32);
  EXPECT_DEATH(aclrtMemcpy(memory, 32, host.data(), 64, ACL_MEMCPY_HOST_TO_DEVICE), "DEST_MAX");
}

TEST_F(Rules, copy_with_an_invented_capacity) {
  const std::vector<char> host(64);
  void* memory = allocate(64);
  EXPECT_DEATH(aclrtMemcpy(memory, 4096, host.data(), 64, ACL_MEMCPY_HOST_TO_DEVICE), "OUT_OF_BOUNDS");
}

TEST_F(Rules, host_memory_as_device_memory) {
  std::vector<char> host(64);
  EXPECT_DEATH(aclrtMemsetAsync(host.data(), 64, 0, 64, stream), "NOT_DEVICE_MEMORY");
}

TEST_F(Rules, device_memory_as_host_memory) {
  void* memory = allocate(64);
  std::vector<char> host(64);
  EXPECT_DEATH(aclrtMemcpy(host.data(), 64, memory, 64, ACL_MEMCPY_HOST_TO_DEVICE),
               "NOT_DEVICE_MEMORY|NOT_HOST_MEMORY");
}

TEST_F(Rules, host_code_follows_a_device_pointer) {
  volatile char* memory = static_cast<char*>(allocate(64));
  // A sanitizer turns the signal into an exit of its own.
  EXPECT_DEATH(memory[0] = 1, "");
}

TEST_F(Rules, copy_past_the_allocation) {
  void* memory = allocate(64);
  void* other = allocate(64);
  EXPECT_DEATH(aclrtMemcpy(memory, 64, static_cast<char*>(other) + 32, 64, ACL_MEMCPY_DEVICE_TO_DEVICE),
               "OUT_OF_BOUNDS");
}

TEST_F(Rules, free_of_what_was_not_allocated) {
  void* memory = allocate(64);
  EXPECT_DEATH(aclrtFree(static_cast<char*>(memory) + 32), "INVALID_FREE");
  EXPECT_DEATH(
      {
        void* twice = nullptr;
        aclrtMalloc(&twice, 64, 0);
        aclrtFree(twice);
        aclrtFree(twice);
      },
      "INVALID_FREE");
}

TEST_F(Rules, view_beyond_its_storage) {
  void* memory = allocate(64);
  EXPECT_DEATH(view(memory, ACL_FLOAT, {4, 4}, {5, 1}, 0, 16), "OUT_OF_BOUNDS: aclCreateTensor");
}

// --- aclnn ---------------------------------------------------------------------------------------------------------

class OperatorRules : public ascend_fake::Fixture {
protected:
  void SetUp() override {
    Fixture::SetUp();
    a = tensor<float>({4}, {1, 2, 3, 4}, &a_memory);
    out = empty_like<float>({4}, &out_memory);
  }
  // Phase 1 of exp; the workspace it asked for is allocated.
  aclOpExecutor* prepare() {
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnExpGetWorkspaceSize(a, out, &bytes, &executor), ACL_SUCCESS);
    workspace = allocate(bytes);
    return executor;
  }
  aclTensor* a = nullptr;
  aclTensor* out = nullptr;
  void* a_memory = nullptr;
  void* out_memory = nullptr;
  void* workspace = nullptr;
  uint64_t bytes = 0;
};

TEST_F(OperatorRules, executor_used_twice) {
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclnnExp(workspace, bytes, executor, stream);
        aclnnExp(workspace, bytes, executor, stream);
      },
      "EXECUTOR_REUSED: phase2 aclnnExp");
}

TEST_F(OperatorRules, executor_of_another_operator) {
  EXPECT_DEATH(aclnnLog(workspace, bytes, prepare(), stream), "WRONG_EXECUTOR");
}

TEST_F(OperatorRules, smaller_or_missing_workspace) {
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclnnExp(workspace, bytes - 1, executor, stream);
      },
      "WORKSPACE_TOO_SMALL");
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclnnExp(nullptr, bytes, executor, stream);
      },
      "WORKSPACE_TOO_SMALL");
}

TEST_F(OperatorRules, workspace_smaller_than_it_claims) {
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclnnExp(allocate(32), bytes, executor, stream);
      },
      "OUT_OF_BOUNDS: aclnnExp: workspace");
}

void free_while_in_use(aclrtStream, void* memory, aclOpExecutor* executor, void* workspace, uint64_t bytes) {
  setenv("RLK_FAKE_ASCEND_DELAY_US", "200000", 1);
  aclrtStream slow = nullptr;
  aclrtCreateStream(&slow);
  aclnnExp(workspace, bytes, executor, slow);
  aclrtFree(memory);
}

TEST_F(OperatorRules, workspace_freed_in_use) {
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        free_while_in_use(stream, workspace, executor, workspace, bytes);
      },
      "FREED_IN_USE: aclrtFree of memory that aclnnExp still uses");
}

TEST_F(OperatorRules, tensor_freed_in_use) {
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        free_while_in_use(stream, out_memory, executor, workspace, bytes);
      },
      "FREED_IN_USE");
}

TEST_F(OperatorRules, pinned_memory_freed_in_use) {
  EXPECT_DEATH(
      {
        setenv("RLK_FAKE_ASCEND_DELAY_US", "200000", 1);
        aclrtStream slow = nullptr;
        aclrtCreateStream(&slow);
        void* pinned = nullptr;
        aclrtMallocHost(&pinned, 16);
        aclrtMemcpyAsync(a_memory, 16, pinned, 16, ACL_MEMCPY_HOST_TO_DEVICE, slow);
        aclrtFreeHost(pinned);
      },
      "FREED_IN_USE: aclrtFreeHost");
}

TEST_F(OperatorRules, misaligned_tensor) {
  void* memory = allocate(128);
  a = describe(static_cast<char*>(memory) + 4, ACL_FLOAT, {4});
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclnnExp(workspace, bytes, executor, stream);
      },
      "MISALIGNED_TENSOR: aclnnExp: self data is at 4 bytes past a 32-byte boundary");
}

TEST_F(OperatorRules, tensor_outside_its_allocation) {
  a = describe(a_memory, ACL_FLOAT, {64});
  out = describe(allocate(256), ACL_FLOAT, {64});
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclnnExp(workspace, bytes, executor, stream);
      },
      "OUT_OF_BOUNDS: aclnnExp: self");
}

TEST_F(OperatorRules, host_tensor) {
  alignas(32) static float host[4] = {};
  a = describe(host, ACL_FLOAT, {4});
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclnnExp(workspace, bytes, executor, stream);
      },
      "NOT_DEVICE_MEMORY: aclnnExp: self");
}

TEST_F(OperatorRules, output_overlaps_an_input) {
  void* memory = allocate(256);
  a = describe(memory, ACL_FLOAT, {16});
  out = describe(static_cast<char*>(memory) + 32, ACL_FLOAT, {16});
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclnnExp(workspace, bytes, executor, stream);
      },
      "OVERLAP: aclnnExp: out overlaps self");
}

TEST_F(OperatorRules, destroyed_tensor) {
  EXPECT_DEATH(
      {
        aclDestroyTensor(a);
        prepare();
      },
      "DESTROYED_HANDLE: aclnnExp: a destroyed aclTensor");
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclDestroyTensor(a);
        aclnnExp(workspace, bytes, executor, stream);
      },
      "TENSOR_DESTROYED: aclnnExp: self");
}

TEST_F(OperatorRules, tensor_of_a_repeatable_executor_destroyed) {
  EXPECT_DEATH(
      {
        aclSetAclOpExecutorRepeatable(prepare());
        aclDestroyTensor(a);
      },
      "DESCRIPTOR_IN_USE");
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclSetAclOpExecutorRepeatable(executor);
        aclDestroyAclOpExecutor(executor);
        aclDestroyTensor(a);
      },
      "DESTROYED_HANDLE: aclDestroyTensor");
}

TEST_F(OperatorRules, rebinding_without_repeatable) {
  EXPECT_DEATH(aclSetInputTensorAddr(prepare(), 0, a, a_memory), "NOT_REPEATABLE");
}

TEST_F(OperatorRules, rebinding_another_tensor) {
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = prepare();
        aclSetAclOpExecutorRepeatable(executor);
        aclSetInputTensorAddr(executor, 0, out, out_memory);
      },
      "WRONG_BINDING");
}

TEST_F(OperatorRules, unsupported_dtype) {
  a = tensor<int64_t>({4}, {1, 2, 3, 4});
  EXPECT_DEATH(prepare(), "UNSUPPORTED_DTYPE: aclnnExp: self is INT64");
}

TEST_F(OperatorRules, index_out_of_range) {
  const aclTensor* index = tensor<int64_t>({2}, {0, 4});
  aclTensor* picked = empty_like<float>({2}, &out_memory);
  EXPECT_DEATH(
      {
        aclOpExecutor* executor = nullptr;
        aclnnIndexSelectGetWorkspaceSize(a, 0, index, picked, &bytes, &executor);
        aclnnIndexSelect(allocate(bytes), bytes, executor, stream);
        aclrtSynchronizeStream(stream);
      },
      "INDEX_OUT_OF_RANGE: aclnnIndexSelect: index 4 of 4");
}

TEST_F(OperatorRules, executor_leaked_at_finalize) {
  EXPECT_DEATH(
      {
        prepare();
        aclFinalize();
      },
      "EXECUTOR_LEAK: 1 executors");
}

TEST_F(OperatorRules, report_mode_returns_instead) {
  setenv("RLK_FAKE_ASCEND_ON_VIOLATION", "report", 1);
  const uint64_t before = fakeAscendViolationCount();
  aclOpExecutor* executor = prepare();
  EXPECT_NE(aclnnExp(nullptr, 0, executor, stream), ACL_SUCCESS);
  EXPECT_EQ(fakeAscendViolationCount(), before + 1);
  EXPECT_NE(std::string(fakeAscendLastViolation()).find("WORKSPACE_TOO_SMALL"), std::string::npos);
  EXPECT_EQ(aclnnExp(workspace, bytes, executor, stream), ACL_SUCCESS);
  unsetenv("RLK_FAKE_ASCEND_ON_VIOLATION");
}

}  // namespace
