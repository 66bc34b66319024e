// Do devices, streams and events of the Ascend plugin keep the host's contract?
#include <atomic>
#include <cstdlib>
#include <thread>

#include "fixture.hpp"

namespace {

using namespace ascend_plugin;

using DeviceTest = Fixture;

// A stream whose commands take `us` microseconds each.
rlk_plugin_stream* slow_stream(const Loaded& plugin, rlk_plugin_device* device, const char* us) {
  setenv("RLK_FAKE_ASCEND_DELAY_US", us, 1);
  rlk_plugin_stream* stream = nullptr;
  EXPECT_EQ(plugin.api->stream->create(device, 0, &stream, nullptr), RLK_OK);
  unsetenv("RLK_FAKE_ASCEND_DELAY_US");
  return stream;
}

TEST_F(DeviceTest, properties_are_filled) {
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  ASSERT_EQ(plugin.api->device_describe(plugin.instance, 0, &properties, nullptr), RLK_OK);
  EXPECT_STREQ(properties.name, "Huawei Ascend910B4");
  EXPECT_STREQ(properties.arch, "Ascend910B4");
  EXPECT_STREQ(properties.runtime_version, "1.14.0");
  EXPECT_EQ(properties.compute_units, 20u);
  EXPECT_EQ(properties.l2_bytes, uint64_t{96} << 20);
  EXPECT_EQ(properties.memory_bytes, 0u);  // this CANN tells it of open devices only
  EXPECT_EQ(properties.numa_node, -1);
  EXPECT_EQ(properties.flags & RLK_DEVICE_MAPPED_PINNED, 0u);
  EXPECT_EQ(plugin.api->device_describe(plugin.instance, 7, &properties, nullptr), RLK_INVALID_ARGUMENT);
}

TEST_F(DeviceTest, the_open_device_is_named_in_the_vendors_terms) {
  rlk_native_device native{};
  native.struct_size = sizeof(native);
  ASSERT_EQ(plugin.api->device->native(device, &native, nullptr), RLK_OK);
  EXPECT_EQ(native.ordinal, 0);
  EXPECT_EQ(native.device, 0);
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  aclrtContext context = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&context), ACL_SUCCESS);
  EXPECT_EQ(native.context, context);
}

TEST_F(DeviceTest, a_wrapped_event_is_only_borrowed) {
  const rlk_event_api& events = *plugin.api->event;
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  aclrtEvent native = nullptr;
  ASSERT_EQ(aclrtCreateEventExWithFlag(&native, 3), ACL_SUCCESS);
  rlk_plugin_event* wrapped = nullptr;
  EXPECT_EQ(events.wrap(device, nullptr, &wrapped, nullptr), RLK_INVALID_ARGUMENT);
  ASSERT_EQ(events.wrap(device, native, &wrapped, nullptr), RLK_OK);
  EXPECT_EQ(events.native(wrapped), native);
  EXPECT_EQ(events.record(wrapped, stream, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->wait_event(stream, wrapped, nullptr), RLK_OK);
  EXPECT_EQ(events.synchronize(wrapped, UINT64_MAX, nullptr), RLK_OK);
  EXPECT_EQ(events.destroy(wrapped, nullptr), RLK_OK);
  EXPECT_EQ(aclrtDestroyEvent(native), ACL_SUCCESS);
}

TEST_F(DeviceTest, slots_work_on_a_thread_without_a_device) {
  std::thread([&] {
    void* memory = nullptr;
    EXPECT_EQ(plugin.api->device->allocate(device, RLK_MEMORY_DEVICE, 64, &memory, nullptr), RLK_OK);
    EXPECT_EQ(plugin.api->stream->fill(stream, memory, 1, 64, nullptr), RLK_OK);
    EXPECT_EQ(plugin.api->stream->synchronize(stream, UINT64_MAX, nullptr, nullptr), RLK_OK);
    EXPECT_EQ(plugin.api->device->deallocate(device, RLK_MEMORY_DEVICE, memory, nullptr), RLK_OK);
  }).join();
}

TEST_F(DeviceTest, the_callers_context_stays_current) {
  aclrtContext own = nullptr;
  ASSERT_EQ(aclrtCreateContext(&own, 0), ACL_SUCCESS);
  uint64_t free_bytes = 0, total = 0;
  EXPECT_EQ(plugin.api->device->memory_info(device, &free_bytes, &total, nullptr), RLK_OK);
  aclrtContext after = nullptr;
  EXPECT_EQ(aclrtGetCurrentContext(&after), ACL_SUCCESS);
  EXPECT_EQ(after, own);
  EXPECT_EQ(aclrtDestroyContext(own), ACL_SUCCESS);
}

TEST_F(DeviceTest, exhausted_memory_says_so) {
  void* memory = nullptr;
  rlk_error error = no_error();
  EXPECT_EQ(plugin.api->device->allocate(device, RLK_MEMORY_DEVICE, uint64_t{1} << 50, &memory, &error),
            RLK_OUT_OF_MEMORY);
  EXPECT_EQ(error.native_code, 207001);
  EXPECT_STREQ(error.domain, "acl");
  EXPECT_NE(std::string(error.text).find("aclrtMalloc failed with 207001 (out of memory)"), std::string::npos);
}

// A record that could not be cleared serves the next stream.
TEST_F(DeviceTest, streams_that_cannot_be_made_leave_no_memory_behind) {
  uint64_t free_before = 0, free_after = 0, total = 0;
  setenv("RLK_FAKE_ASCEND_FAIL", "aclrtMemset:0:507899", 1);
  for (int i = 0; i < 3; ++i) {
    rlk_plugin_stream* none = nullptr;
    rlk_error error = no_error();
    EXPECT_EQ(plugin.api->stream->create(device, 0, &none, &error), RLK_BACKEND_ERROR);
    EXPECT_EQ(error.native_code, 507899);
    ASSERT_EQ(plugin.api->device->memory_info(device, &free_after, &total, nullptr), RLK_OK);
    if (i == 0) free_before = free_after;
  }
  unsetenv("RLK_FAKE_ASCEND_FAIL");
  EXPECT_EQ(free_after, free_before);
  rlk_plugin_stream* next = nullptr;
  ASSERT_EQ(plugin.api->stream->create(device, 0, &next, nullptr), RLK_OK);
  ASSERT_EQ(plugin.api->device->memory_info(device, &free_after, &total, nullptr), RLK_OK);
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(plugin.api->stream->destroy(next, nullptr), RLK_OK);
}

TEST_F(DeviceTest, streams_are_asynchronous_and_deadlines_hold) {
  rlk_plugin_stream* slow = slow_stream(plugin, device, "100000");
  void* memory = allocate(4);
  ASSERT_EQ(plugin.api->stream->fill(slow, memory, 7, 4, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->query(slow, nullptr, nullptr), RLK_NOT_READY);
  EXPECT_EQ(plugin.api->stream->synchronize(slow, 0, nullptr, nullptr), RLK_TIMEOUT);
  EXPECT_EQ(plugin.api->stream->synchronize(slow, 1000, nullptr, nullptr), RLK_TIMEOUT);
  EXPECT_EQ(plugin.api->stream->synchronize(slow, UINT64_MAX, nullptr, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->query(slow, nullptr, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->destroy(slow, nullptr), RLK_OK);
}

TEST_F(DeviceTest, a_stream_is_destroyed_after_its_work) {
  rlk_plugin_stream* slow = slow_stream(plugin, device, "20000");
  ASSERT_EQ(plugin.api->stream->fill(slow, allocate(4), 7, 4, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->destroy(slow, nullptr), RLK_OK);
}

TEST_F(DeviceTest, copies_go_both_ways) {
  void* pinned = nullptr;
  ASSERT_EQ(plugin.api->device->allocate(device, RLK_MEMORY_PINNED, 64, &pinned, nullptr), RLK_OK);
  std::memset(pinned, 3, 64);
  void* a = allocate(64);
  void* b = allocate(64);
  const rlk_stream_api& streams = *plugin.api->stream;
  ASSERT_EQ(streams.copy(stream, a, pinned, 64, RLK_COPY_HOST_TO_DEVICE, nullptr), RLK_OK);
  ASSERT_EQ(streams.copy(stream, b, a, 64, RLK_COPY_DEVICE_TO_DEVICE, nullptr), RLK_OK);
  ASSERT_EQ(streams.fill(stream, a, 0, 64, nullptr), RLK_OK);
  ASSERT_EQ(synchronize(), RLK_OK);
  std::memset(pinned, 0, 64);
  ASSERT_EQ(streams.copy(stream, pinned, b, 64, RLK_COPY_DEVICE_TO_HOST, nullptr), RLK_OK);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(static_cast<char*>(pinned)[63], 3);
  EXPECT_EQ(plugin.api->device->deallocate(device, RLK_MEMORY_PINNED, pinned, nullptr), RLK_OK);
}

TEST_F(DeviceTest, events_order_streams_and_measure) {
  const rlk_event_api& events = *plugin.api->event;
  rlk_plugin_event* start = nullptr;
  rlk_plugin_event* end = nullptr;
  ASSERT_EQ(events.create(device, RLK_EVENT_TIMING, &start, nullptr), RLK_OK);
  ASSERT_EQ(events.create(device, RLK_EVENT_TIMING, &end, nullptr), RLK_OK);
  EXPECT_EQ(events.query(end, nullptr), RLK_OK);
  EXPECT_EQ(events.synchronize(end, UINT64_MAX, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->wait_event(stream, end, nullptr), RLK_OK);
  rlk_plugin_stream* slow = slow_stream(plugin, device, "30000");
  void* memory = allocate(4);
  ASSERT_EQ(events.record(start, slow, nullptr), RLK_OK);
  ASSERT_EQ(plugin.api->stream->fill(slow, memory, 1, 4, nullptr), RLK_OK);
  ASSERT_EQ(events.record(end, slow, nullptr), RLK_OK);
  EXPECT_EQ(events.query(end, nullptr), RLK_NOT_READY);
  EXPECT_EQ(events.synchronize(end, 1, nullptr), RLK_TIMEOUT);
  ASSERT_EQ(plugin.api->stream->wait_event(stream, end, nullptr), RLK_OK);
  ASSERT_EQ(plugin.api->stream->fill(stream, memory, 2, 4, nullptr), RLK_OK);
  ASSERT_EQ(synchronize(), RLK_OK);
  uint8_t value = 0;
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemcpy(&value, 1, memory, 1, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
  EXPECT_EQ(value, 2);
  double ms = 0;
  EXPECT_EQ(events.elapsed_ms(start, end, &ms, nullptr), RLK_OK);
  EXPECT_GE(ms, 55.0);
  EXPECT_EQ(events.destroy(start, nullptr), RLK_OK);
  EXPECT_EQ(events.destroy(end, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->destroy(slow, nullptr), RLK_OK);
}

TEST_F(DeviceTest, host_functions_are_unsupported_before_9) {
  rlk_error error = no_error();
  const auto never = [](void*) { ADD_FAILURE() << "called"; };
  EXPECT_EQ(plugin.api->stream->enqueue_host_function(stream, never, nullptr, &error), RLK_UNSUPPORTED);
  EXPECT_NE(std::string(error.text).find("aclrtLaunchHostFunc"), std::string::npos) << error.text;
}

TEST(DeviceTestOf9, memory_of_unopened_devices_is_known) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("RLK_FAKE_ASCEND_VERSION", "9.0", 1);
  const auto run = [] {
    Loaded plugin;
    rlk_device_properties properties{};
    properties.struct_size = sizeof(properties);
    const bool ok = plugin.api->device_describe(plugin.instance, 0, &properties, nullptr) == RLK_OK &&
                    properties.memory_bytes == uint64_t{4096} << 20;
    aclrtContext context = nullptr;  // and nothing was opened
    _exit(ok && aclrtGetCurrentContext(&context) != ACL_SUCCESS ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
  unsetenv("RLK_FAKE_ASCEND_VERSION");
}

TEST(DeviceTestOf9, host_functions_run_in_order) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("RLK_FAKE_ASCEND_VERSION", "9.0", 1);
  const auto run = [] {
    Loaded plugin;
    rlk_plugin_device* device = nullptr;
    rlk_plugin_stream* stream = nullptr;
    std::atomic<int> calls{0};
    const bool ok =
        plugin.api->device_open(plugin.instance, 0, &device, nullptr) == RLK_OK &&
        plugin.api->stream->create(device, 0, &stream, nullptr) == RLK_OK &&
        plugin.api->stream->enqueue_host_function(
            stream, [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); }, &calls, nullptr) == RLK_OK &&
        plugin.api->stream->synchronize(stream, UINT64_MAX, nullptr, nullptr) == RLK_OK && calls == 1;
    _exit(ok ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
  unsetenv("RLK_FAKE_ASCEND_VERSION");
}

TEST_F(DeviceTest, a_wrapped_stream_is_only_borrowed) {
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  aclrtStream native = nullptr;
  ASSERT_EQ(aclrtCreateStream(&native), ACL_SUCCESS);
  rlk_plugin_stream* wrapped = nullptr;
  ASSERT_EQ(plugin.api->stream->wrap(device, native, &wrapped, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->native(wrapped), native);
  EXPECT_EQ(plugin.api->stream->fill(wrapped, allocate(4), 7, 4, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->synchronize(wrapped, UINT64_MAX, nullptr, nullptr), RLK_OK);
  EXPECT_EQ(plugin.api->stream->destroy(wrapped, nullptr), RLK_OK);
  EXPECT_EQ(aclrtDestroyStream(native), ACL_SUCCESS);
}

}  // namespace
