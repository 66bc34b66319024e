// A plugin of plugins/simt/host over a runtime of HIP's shape: is the device it describes that runtime's, does the
// caller's device stay current, and is what the runtime lacks told?
#include <string>
#include <thread>
#include <vector>

#include "framework/plugin_fixture.hpp"

extern "C" {
int wideGetDevice(int* device);
int wideSetDevice(int device);
}

namespace {

class WideTest : public rlk::test::PluginFixture {
protected:
  void TearDown() override {
    PluginFixture::TearDown();
    wideSetDevice(0);
  }
  rlk_plugin_device* open_second() {
    rlk_plugin_device* second = nullptr;
    EXPECT_EQ(api->device_open(instance, 1, &second, &error), RLK_OK) << error.text;
    return second;
  }
  // The last of 64 bytes of device memory, after what is in the stream.
  unsigned char last_of(rlk_plugin_stream* from, const void* memory) {
    unsigned char bytes[64] = {};
    EXPECT_EQ(api->stream->copy(from, bytes, memory, 64, RLK_COPY_DEVICE_TO_HOST, &error), RLK_OK) << error.text;
    EXPECT_EQ(api->stream->synchronize(from, UINT64_MAX, nullptr, &error), RLK_OK) << error.text;
    return bytes[63];
  }
  const rlk::test::Variable devices_{"RLK_FAKE_WIDE_DEVICES", "2"};
};

TEST_F(WideTest, DescribesTheDeviceByTheNumbersOfItsRuntime) {
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  ASSERT_EQ(api->device_describe(instance, 0, &properties, &error), RLK_OK) << error.text;
  EXPECT_STREQ(properties.name, "Wide device");
  EXPECT_STREQ(properties.arch, "wide64");
  EXPECT_STREQ(properties.runtime_version, "5.2");
  EXPECT_STREQ(properties.pci_bus_id, "0000:ab:00.0");  // as the system writes it
  EXPECT_EQ(properties.simt_width, 64u);
  EXPECT_EQ(properties.compute_units, 4u);
  EXPECT_EQ(properties.flags, RLK_DEVICE_MAPPED_PINNED);  // by the table: no attribute tells
  EXPECT_EQ(properties.l2_bytes, 0u);                     // an attribute that the runtime does not have
}

TEST_F(WideTest, LeavesTheCallersDeviceCurrent) {
  open();
  rlk_plugin_device* second = open_second();
  rlk_plugin_stream* stream_of_second = nullptr;
  ASSERT_EQ(api->stream->create(second, 0, &stream_of_second, &error), RLK_OK) << error.text;
  // From either device the other one's stream works: the runtime refuses a stream of a device that is not current.
  for (const int mine : {0, 1}) {
    ASSERT_EQ(wideSetDevice(mine), 0);
    for (const auto& [device_used, stream_used] : {std::pair{device, stream}, std::pair{second, stream_of_second}}) {
      void* memory = nullptr;
      EXPECT_EQ(api->device->allocate(device_used, RLK_MEMORY_DEVICE, 64, &memory, &error), RLK_OK) << error.text;
      EXPECT_EQ(api->stream->fill(stream_used, memory, 0xa5, 64, &error), RLK_OK) << error.text;
      EXPECT_EQ(api->stream->synchronize(stream_used, UINT64_MAX, nullptr, &error), RLK_OK) << error.text;
      EXPECT_EQ(last_of(stream_used, memory), 0xa5);
      EXPECT_EQ(api->device->deallocate(device_used, RLK_MEMORY_DEVICE, memory, &error), RLK_OK) << error.text;
      int now = -1;
      wideGetDevice(&now);
      EXPECT_EQ(now, mine);
    }
  }
  EXPECT_EQ(api->stream->destroy(stream_of_second, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->device_close(second, &error), RLK_OK) << error.text;
}

TEST_F(WideTest, TellsTheDeviceAndNoContext) {
  rlk_plugin_device* second = open_second();
  rlk_native_device native{};
  native.struct_size = sizeof(native);
  ASSERT_EQ(api->device->native(second, &native, &error), RLK_OK) << error.text;
  EXPECT_EQ(native.ordinal, 1);
  EXPECT_EQ(native.device, 1);
  EXPECT_EQ(native.context, nullptr);
  EXPECT_EQ(api->device_close(second, &error), RLK_OK);
}

TEST_F(WideTest, CopiesSayTheirKindAndTheirDevices) {
  open();
  rlk_plugin_device* second = open_second();
  std::vector<char> host(64, 7), back(64, 0);
  void *from = nullptr, *to = nullptr;
  ASSERT_EQ(api->device->allocate(device, RLK_MEMORY_DEVICE, 64, &from, &error), RLK_OK);
  ASSERT_EQ(api->device->allocate(second, RLK_MEMORY_DEVICE, 64, &to, &error), RLK_OK);
  EXPECT_EQ(api->stream->copy(stream, from, host.data(), 64, RLK_COPY_HOST_TO_DEVICE, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->copy_peer(stream, to, second, from, device, 64, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->copy(stream, back.data(), to, 64, RLK_COPY_DEVICE_TO_HOST, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->synchronize(stream, UINT64_MAX, nullptr, &error), RLK_OK) << error.text;
  EXPECT_EQ(back, host);
  EXPECT_EQ(api->device->deallocate(device, RLK_MEMORY_DEVICE, from, &error), RLK_OK);
  EXPECT_EQ(api->device->deallocate(second, RLK_MEMORY_DEVICE, to, &error), RLK_OK);
  EXPECT_EQ(api->device_close(second, &error), RLK_OK);
}

TEST_F(WideTest, MemoryThatIsNotThereIsToldInTheVendorsCode) {
  open();
  void* memory = nullptr;
  EXPECT_EQ(api->device->allocate(device, RLK_MEMORY_DEVICE, uint64_t{1} << 40, &memory, &error), RLK_OUT_OF_MEMORY);
  EXPECT_EQ(error.native_code, 10007);
  EXPECT_STREQ(error.domain, "wide");
}

TEST_F(WideTest, WhatTheRuntimeLacksIsUnsupported) {
  open();
  void* memory = nullptr;
  EXPECT_EQ(api->stream->allocate_async(stream, 64, &memory, &error), RLK_UNSUPPORTED);
  ASSERT_EQ(graphs().begin_capture(stream, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->capture_retain(stream, nullptr, nullptr, &error), RLK_UNSUPPORTED);
  rlk_plugin_graph* graph = nullptr;
  ASSERT_EQ(graphs().end_capture(stream, &graph, &error), RLK_OK) << error.text;
  EXPECT_EQ(graphs().destroy(graph, &error), RLK_OK);
  int32_t kind = -1;
  EXPECT_EQ(api->device->pointer_kind(device, &kind, &kind, &error), RLK_UNSUPPORTED);
}

TEST_F(WideTest, ReplaysACapturedGraph) {
  open();
  void* memory = nullptr;
  ASSERT_EQ(api->device->allocate(device, RLK_MEMORY_DEVICE, 64, &memory, &error), RLK_OK);
  EXPECT_EQ(api->stream->fill(stream, memory, 1, 64, &error), RLK_OK) << error.text;
  EXPECT_EQ(last_of(stream, memory), 1);
  rlk_plugin_graph* graph = nullptr;
  ASSERT_EQ(graphs().begin_capture(stream, &error), RLK_OK) << error.text;
  EXPECT_EQ(api->stream->fill(stream, memory, 9, 64, &error), RLK_OK) << error.text;
  ASSERT_EQ(graphs().end_capture(stream, &graph, &error), RLK_OK) << error.text;
  EXPECT_EQ(last_of(stream, memory), 1);
  EXPECT_EQ(graphs().launch(graph, stream, &error), RLK_OK) << error.text;
  EXPECT_EQ(last_of(stream, memory), 9);
  EXPECT_EQ(graphs().destroy(graph, &error), RLK_OK);
  EXPECT_EQ(api->device->deallocate(device, RLK_MEMORY_DEVICE, memory, &error), RLK_OK);
}

}  // namespace
