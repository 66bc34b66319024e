// Are devices described unopened, named in the driver's terms, and does the caller's context stay current?
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
  EXPECT_EQ(properties.memory_bytes, uint64_t{2} << 30);
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
  const Variable devices("RLK_FAKE_CUDA_DEVICES", "2");
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
    for (const int32_t kind : {RLK_MEMORY_DEVICE, RLK_MEMORY_PINNED}) {
      EXPECT_EQ(api->device->allocate(device, kind, 64, &memory, &mine), RLK_OK) << mine.text;
      if (kind == RLK_MEMORY_DEVICE) {
        EXPECT_EQ(api->stream->fill(stream, memory, 1, 64, &mine), RLK_OK) << mine.text;
      }
      EXPECT_EQ(api->device->deallocate(device, kind, memory, &mine), RLK_OK) << mine.text;
    }
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
  const std::vector<char> host(64, 7);
  std::vector<char> back(64, 0);
  EXPECT_EQ(api->stream->copy(stream, from, host.data(), 64, RLK_COPY_HOST_TO_DEVICE, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->copy_peer(stream, to, second, from, device, 64, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->copy(stream, back.data(), to, 64, RLK_COPY_DEVICE_TO_HOST, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->synchronize(stream, UINT64_MAX, nullptr, &error), RLK_OK) << error.text;
  EXPECT_EQ(back, host);
  api->device->deallocate(device, RLK_MEMORY_DEVICE, from, nullptr);
  api->device->deallocate(second, RLK_MEMORY_DEVICE, to, nullptr);
  EXPECT_EQ(api->device_close(second, nullptr), RLK_OK);
}

TEST_F(DeviceTest, BorrowsEventsOfTheDriver) {
  open();
  const EmbeddersContext context;
  void* native = nullptr;
  ASSERT_EQ(cuEventCreate(&native, 0), 0);
  rlk_plugin_event* wrapped = nullptr;
  EXPECT_EQ(api->event->wrap(device, nullptr, &wrapped, &error), RLK_INVALID_ARGUMENT);
  ASSERT_EQ(api->event->wrap(device, native, &wrapped, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->event->native(wrapped), native);
  EXPECT_EQ(api->event->record(wrapped, stream, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->wait_event(stream, wrapped, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->event->synchronize(wrapped, UINT64_MAX, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->event->destroy(wrapped, &error), RLK_OK) << error.text;
  EXPECT_EQ(cuEventDestroy_v2(native), 0);  // still there
}

// After an illegal address the context is lost with everything in it; an error of another kind is one call's.
TEST_F(DeviceTest, TellsALostDeviceFromAFailedCall) {
  open();
  for (const char* code : {"700", "719"}) {
    const Variable fail("RLK_FAKE_CUDA_FAIL", ("cuStreamQuery:0:" + std::string(code)).c_str());
    EXPECT_EQ(api->stream->query(stream, nullptr, &error), RLK_DEVICE_LOST) << code;
    EXPECT_EQ(std::to_string(error.native_code), code);
    EXPECT_STREQ(error.domain, "cuda");
    fakeResetCalls();
  }
  {
    const Variable fail("RLK_FAKE_CUDA_FAIL", "cuStreamQuery:0:801");
    EXPECT_EQ(api->stream->query(stream, nullptr, &error), RLK_UNSUPPORTED);
  }
  const Variable fail("RLK_FAKE_CUDA_FAIL", "cuStreamSynchronize:0:999,cuStreamQuery:0:999");
  EXPECT_EQ(api->stream->synchronize(stream, 1000, nullptr, &error), RLK_BACKEND_ERROR);
  EXPECT_EQ(error.native_code, 999);
}

}  // namespace
