// Are devices described unopened, named in the driver's terms, and does the caller's context stay current?
#include <cstring>
#include <thread>

#include "fixture.hpp"

namespace {

using namespace cuda_plugin;
using DeviceTest = Fixture;

TEST_F(DeviceTest, IsDescribedWithoutAContext) {
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  ASSERT_EQ(api->device_describe(instance, 0, &properties, &error), RLK_OK) << error.text;
  EXPECT_EQ(fakeCudaRetained(0), 0);
  EXPECT_EQ(properties.flags, RLK_DEVICE_MAPPED_PINNED);
  EXPECT_STREQ(properties.name, "Emulated device");
  EXPECT_STREQ(properties.arch, "sm_90");
  EXPECT_STREQ(properties.pci_bus_id, "10000:01:00.0");  // a domain of more than four digits
  EXPECT_EQ(properties.uuid[15], 15);
  EXPECT_EQ(properties.numa_node, -1);
  EXPECT_EQ(properties.compute_units, 4u);
  EXPECT_EQ(properties.memory_bytes, uint64_t{16} << 30);
  EXPECT_EQ(api->device_describe(instance, 1, &properties, &error), RLK_INVALID_ARGUMENT);

  open();
  EXPECT_EQ(fakeCudaRetained(0), 1);
}

TEST_F(DeviceTest, DoesNotPromiseMappedMemoryWithoutUnifiedAddressing) {
  const Variable uva("RLK_FAKE_CUDA_UVA", "0");
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  ASSERT_EQ(api->device_describe(instance, 0, &properties, &error), RLK_OK) << error.text;
  EXPECT_EQ(properties.flags & RLK_DEVICE_MAPPED_PINNED, 0u);
}

TEST_F(DeviceTest, TellsTheDriversDeviceAndContext) {
  const Variable devices("RLK_FAKE_CUDA_DEVICES", "2");
  rlk_plugin_device* second = nullptr;
  ASSERT_EQ(api->device_open(instance, 1, &second, &error), RLK_OK) << error.text;
  rlk_native_device native{};
  native.struct_size = sizeof(native);
  ASSERT_EQ(api->device->native(second, &native, &error), RLK_OK) << error.text;
  void* context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), 0);
  EXPECT_EQ(native.ordinal, 1);
  EXPECT_EQ(native.device, 1);
  EXPECT_EQ(native.context, context);
  cuDevicePrimaryCtxRelease_v2(1);
  EXPECT_EQ(api->device_close(second, nullptr), RLK_OK);
}

TEST_F(DeviceTest, LeavesTheCallersContextCurrent) {
  open();
  void *other = nullptr, *now = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), 0);
  ASSERT_EQ(cuCtxPushCurrent_v2(other), 0);
  void* memory = nullptr;
  EXPECT_EQ(api->device->allocate(device, RLK_MEMORY_DEVICE, 64, &memory, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->fill(stream, memory, 1, 64, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->synchronize(stream, UINT64_MAX, nullptr, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->device->deallocate(device, RLK_MEMORY_DEVICE, memory, &error), RLK_OK) << error.text;
  cuCtxGetCurrent(&now);
  EXPECT_EQ(now, other);
  cuCtxPopCurrent_v2(&now);
  cuDevicePrimaryCtxRelease_v2(1);
}

TEST_F(DeviceTest, WorksOnAThreadWithoutAContext) {
  open();
  std::thread([&] {
    void* context = &context;
    rlk_error mine = no_error();
    void* memory = nullptr;
    EXPECT_EQ(api->device->allocate(device, RLK_MEMORY_PINNED, 64, &memory, &mine), RLK_OK) << mine.text;
    EXPECT_EQ(api->stream->fill(stream, memory, 1, 64, &mine), RLK_OK) << mine.text;
    EXPECT_EQ(api->device->deallocate(device, RLK_MEMORY_PINNED, memory, &mine), RLK_OK) << mine.text;
    cuCtxGetCurrent(&context);
    EXPECT_EQ(context, nullptr);
  }).join();
}

TEST_F(DeviceTest, CopiesBetweenTwoDevices) {
  const Variable devices("RLK_FAKE_CUDA_DEVICES", "2");
  open();
  rlk_plugin_device* second = nullptr;
  ASSERT_EQ(api->device_open(instance, 1, &second, &error), RLK_OK) << error.text;
  void *from = nullptr, *to = nullptr;
  ASSERT_EQ(api->device->allocate(device, RLK_MEMORY_DEVICE, 64, &from, &error), RLK_OK);
  ASSERT_EQ(api->device->allocate(second, RLK_MEMORY_DEVICE, 64, &to, &error), RLK_OK);
  std::memset(from, 7, 64);
  std::memset(to, 0, 64);
  EXPECT_EQ(api->stream->copy_peer(stream, to, second, from, device, 64, &error), RLK_OK) << error.text;
  EXPECT_EQ(std::memcmp(from, to, 64), 0);
  api->device->deallocate(device, RLK_MEMORY_DEVICE, from, nullptr);
  api->device->deallocate(second, RLK_MEMORY_DEVICE, to, nullptr);
  EXPECT_EQ(api->device_close(second, nullptr), RLK_OK);
}

TEST_F(DeviceTest, BorrowsEventsOfTheDriver) {
  open();
  void* native = nullptr;
  ASSERT_EQ(cuEventCreate(&native, 0), 0);
  rlk_plugin_event* wrapped = nullptr;
  EXPECT_EQ(api->event->wrap(device, nullptr, &wrapped, &error), RLK_INVALID_ARGUMENT);
  ASSERT_EQ(api->event->wrap(device, native, &wrapped, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->event->native(wrapped), native);
  EXPECT_EQ(api->event->record(wrapped, stream, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->wait_event(stream, wrapped, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->event->synchronize(wrapped, 1000, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->event->destroy(wrapped, &error), RLK_OK) << error.text;
  EXPECT_EQ(cuEventDestroy_v2(native), 0);  // still there
}

// After an illegal address the context is lost with everything in it; an error of another kind is one call's.
TEST_F(DeviceTest, TellsALostDeviceFromAFailedCall) {
  open();
  for (const char* code : {"700", "719"}) {
    const Variable work("RLK_FAKE_CUDA_WORK", code);
    EXPECT_EQ(api->stream->query(stream, nullptr, &error), RLK_DEVICE_LOST) << code;
    EXPECT_EQ(std::to_string(error.native_code), code);
    EXPECT_STREQ(error.domain, "cuda");
  }
  {
    const Variable work("RLK_FAKE_CUDA_WORK", "801");
    EXPECT_EQ(api->stream->query(stream, nullptr, &error), RLK_UNSUPPORTED);
  }
  const Variable work("RLK_FAKE_CUDA_WORK", "999");
  EXPECT_EQ(api->stream->synchronize(stream, 1000, nullptr, &error), RLK_BACKEND_ERROR);
  EXPECT_EQ(error.native_code, 999);
}

}  // namespace
