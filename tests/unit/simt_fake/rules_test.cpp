// Does the simulated runtime stop a program that breaks a rule, and is it asynchronous? One seeded violation per rule.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "framework/env.hpp"
#include "plugins/simt/skeleton/map.h"

extern "C" {
int hipSetDevice(int device);
int hipMalloc(void** pointer, size_t bytes);
int hipFree(void* pointer);
int hipHostMalloc(void** pointer, size_t bytes, unsigned flags);
int hipHostFree(void* pointer);
int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream);
int hipMemsetAsync(void* to, int value, size_t bytes, void* stream);
int hipStreamCreateWithFlags(void** stream, unsigned flags);
int hipStreamDestroy(void* stream);
int hipStreamQuery(void* stream);
int hipStreamSynchronize(void* stream);
int hipStreamWaitEvent(void* stream, void* event, unsigned flags);
int hipStreamBeginCapture(void* stream, int mode);
int hipStreamEndCapture(void* stream, void** graph);
int hipLaunchHostFunc(void* stream, void (*function)(void*), void* user);
int hipEventCreateWithFlags(void** event, unsigned flags);
int hipEventDestroy(void* event);
int hipEventRecord(void* event, void* stream);
int hipEventQuery(void* event);
int hipEventSynchronize(void* event);
int hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream);
int hipModuleLoadData(void** module, const void* image);
int hipModuleGetFunction(void** function, void* module, const char* name);
int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void* stream, void** parameters,
                          void** extra);
void fakeResetCalls();
}

namespace {

constexpr int kToDevice = 1, kToHost = 2, kNotReady = 600;

class SimtFakeTest : public testing::Test {
protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    fakeResetCalls();
    ASSERT_EQ(hipSetDevice(0), 0);
    ASSERT_EQ(hipStreamCreateWithFlags(&stream, 1), 0);
    ASSERT_EQ(hipMalloc(&memory, 64), 0);
  }
  void TearDown() override {
    EXPECT_EQ(hipFree(memory), 0);
    EXPECT_EQ(hipStreamDestroy(stream), 0);
  }
  const rlk::testing::ScopedEnv devices_{"RLK_FAKE_HIP_DEVICES", "2"};
  void* stream = nullptr;
  void* memory = nullptr;
  char host[64] = {};
};

TEST_F(SimtFakeTest, AFunctionOnAStreamMayNotCallTheRuntime) {
  EXPECT_DEATH(
      {
        hipLaunchHostFunc(
            stream, [](void* queried) { hipStreamQuery(queried); }, stream);
        hipStreamSynchronize(stream);
      },
      "CALL_IN_HOST_FUNCTION: hipStreamQuery");
}

TEST_F(SimtFakeTest, ADestroyedStreamMayNotBeUsed) {
  EXPECT_DEATH(
      {
        hipStreamDestroy(stream);
        hipStreamQuery(stream);
      },
      "DESTROYED_HANDLE: hipStreamQuery: a destroyed stream");
}

TEST_F(SimtFakeTest, AnEventIsNoStreamAndADestroyedOneIsGone) {
  void* event = nullptr;
  ASSERT_EQ(hipEventCreateWithFlags(&event, 0), 0);
  EXPECT_DEATH(hipStreamQuery(event), "INVALID_HANDLE");
  ASSERT_EQ(hipEventDestroy(event), 0);
  EXPECT_DEATH(hipEventRecord(event, stream), "DESTROYED_HANDLE");
}

TEST_F(SimtFakeTest, AStreamOfAnotherDeviceIsNotUsedHere) {
  EXPECT_DEATH(
      {
        hipSetDevice(1);
        hipMemsetAsync(memory, 0, 64, stream);
      },
      "WRONG_DEVICE");
}

TEST_F(SimtFakeTest, HostMemoryIsNoDeviceMemoryAndDeviceMemoryIsNotTheHosts) {
  EXPECT_DEATH(hipMemsetAsync(host, 0, 64, stream), "NOT_DEVICE_MEMORY");
  EXPECT_DEATH(hipMemcpyAsync(host, host, 64, kToDevice, stream), "NOT_DEVICE_MEMORY: .*destination");
  EXPECT_DEATH(hipMemcpyAsync(memory, memory, 64, kToDevice, stream), "NOT_HOST_MEMORY: .*source");
  EXPECT_DEATH(static_cast<volatile char*>(memory)[0] = 1, "");  // the host follows a device address
}

TEST_F(SimtFakeTest, AnAllocationIsNotLeftAndNotFreedTwice) {
  EXPECT_DEATH(hipMemcpyAsync(memory, host, 65, kToDevice, stream), "OUT_OF_BOUNDS");
  EXPECT_DEATH(
      {
        hipFree(memory);
        hipFree(memory);
      },
      "INVALID_FREE");
  void* pinned = nullptr;
  ASSERT_EQ(hipHostMalloc(&pinned, 16, 0), 0);
  EXPECT_DEATH(
      {
        static_cast<char*>(pinned)[16] = 1;
        hipHostFree(pinned);
      },
      "WROTE_OUTSIDE");
  EXPECT_EQ(hipHostFree(pinned), 0);
}

TEST_F(SimtFakeTest, WhatIsNoCodeObjectIsRefusedAndACapturingStreamIsNotDestroyed) {
  void* module = nullptr;
  EXPECT_EQ(hipModuleLoadData(&module, "something else"), 200);
  EXPECT_DEATH(
      {
        hipStreamBeginCapture(stream, 2);
        hipStreamDestroy(stream);
      },
      "CAPTURING");
}

TEST_F(SimtFakeTest, AKernelMayNotFollowAnAddressThatDoesNotFitItsType) {
  void *module = nullptr, *kernel = nullptr;
  ASSERT_EQ(hipModuleLoadData(&module, "simulated code object of arithmetic\n"), 0);
  ASSERT_EQ(hipModuleGetFunction(&kernel, module, "arithmetic_map_Mul_f32"), 0);
  rlk::simt::MapArgs args{};
  for (int t = 0; t < 3; ++t) args.tensor[t].data = memory;
  args.elements = args.pieces = args.shape[0] = 1;
  args.dims = 1;
  args.form = rlk::simt::kMapAny;
  void* parameters[] = {&args};
  const auto launch = [&] {
    hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr);
    return hipStreamSynchronize(stream);
  };
  for (int32_t& stride : args.stride) stride = 4096;  // two of them look like an address
  EXPECT_EQ(launch(), 0);
  args.tensor[1].data = static_cast<char*>(memory) + 2;
  EXPECT_DEATH(launch(), "MISALIGNED: arithmetic_map_Mul_f32: .*no multiple of 4 bytes");
  args.tensor[1].data = host;
  EXPECT_DEATH(launch(), "NOT_DEVICE_MEMORY: arithmetic_map_Mul_f32");
}

TEST_F(SimtFakeTest, ACopyBetweenDevicesNamesWhoseMemoryItIs) {
  void* there = nullptr;
  ASSERT_EQ(hipSetDevice(1), 0);
  ASSERT_EQ(hipMalloc(&there, 64), 0);
  ASSERT_EQ(hipSetDevice(0), 0);
  EXPECT_EQ(hipMemcpyPeerAsync(there, 1, memory, 0, 64, stream), 0);
  EXPECT_DEATH(hipMemcpyPeerAsync(there, 0, memory, 1, 64, stream), "WRONG_DEVICE");
  EXPECT_EQ(hipStreamSynchronize(stream), 0);
  ASSERT_EQ(hipSetDevice(1), 0);
  EXPECT_EQ(hipFree(there), 0);
  ASSERT_EQ(hipSetDevice(0), 0);
}

TEST_F(SimtFakeTest, WhatFailsOnTheStreamIsToldByItAndByItsEventsAndNobodyWaitsForEver) {
  fakeResetCalls();
  void* event = nullptr;
  ASSERT_EQ(hipEventCreateWithFlags(&event, 0), 0);
  {
    const rlk::testing::ScopedEnv fail("RLK_FAKE_HIP_ASYNC_FAIL", "hipMemsetAsync:2:700");
    EXPECT_EQ(hipMemsetAsync(memory, 7, 64, stream), 0);
    EXPECT_EQ(hipStreamSynchronize(stream), 0);
    const rlk::testing::ScopedEnv slow("RLK_FAKE_HIP_DELAY_US", "1000");
    void* other = nullptr;
    ASSERT_EQ(hipStreamCreateWithFlags(&other, 1), 0);
    EXPECT_EQ(hipMemsetAsync(memory, 7, 64, other), 0);
    EXPECT_EQ(hipEventRecord(event, other), 0);
    EXPECT_EQ(hipEventSynchronize(event), 700);
    EXPECT_EQ(hipStreamQuery(other), 700);
  }
  EXPECT_EQ(hipEventDestroy(event), 700);  // sticky
  fakeResetCalls();
}

TEST_F(SimtFakeTest, WorkRunsAfterTheCallAndInOrderAcrossStreams) {
  static std::atomic<bool> go;
  static std::atomic<int> order;
  go = false;
  order = 0;
  const auto first = [](void*) {
    while (!go) std::this_thread::yield();
    order = 1;
  };
  const auto second = [](void* seen) { *static_cast<int*>(seen) = order; };
  void *event = nullptr, *other = nullptr;
  int seen = -1;
  ASSERT_EQ(hipEventCreateWithFlags(&event, 0), 0);
  ASSERT_EQ(hipStreamCreateWithFlags(&other, 1), 0);
  EXPECT_EQ(hipLaunchHostFunc(stream, first, nullptr), 0);
  EXPECT_EQ(hipEventRecord(event, stream), 0);
  EXPECT_EQ(hipStreamWaitEvent(other, event, 0), 0);
  EXPECT_EQ(hipLaunchHostFunc(other, second, &seen), 0);
  EXPECT_EQ(hipStreamQuery(stream), kNotReady);
  EXPECT_EQ(hipEventQuery(event), kNotReady);
  EXPECT_EQ(hipStreamQuery(other), kNotReady);
  go = true;
  EXPECT_EQ(hipStreamSynchronize(other), 0);
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(hipEventQuery(event), 0);
  EXPECT_EQ(hipStreamDestroy(other), 0);
  EXPECT_EQ(hipEventDestroy(event), 0);
}

TEST_F(SimtFakeTest, TheNthCallFailsAndALostDeviceStaysLost) {
  fakeResetCalls();
  const rlk::testing::ScopedEnv fail("RLK_FAKE_HIP_FAIL", "hipMemsetAsync:2:1,hipStreamQuery:1:719");
  EXPECT_EQ(hipMemsetAsync(memory, 7, 64, stream), 0);
  EXPECT_EQ(hipMemsetAsync(memory, 7, 64, stream), 1);
  EXPECT_EQ(hipMemcpyAsync(host, memory, 64, kToHost, stream), 0);
  EXPECT_EQ(host[63], 7);
  EXPECT_EQ(hipStreamQuery(stream), 719);
  EXPECT_EQ(hipMemsetAsync(memory, 7, 64, stream), 719);
  fakeResetCalls();
}

}  // namespace
