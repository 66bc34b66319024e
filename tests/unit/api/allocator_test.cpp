// The embedder's own allocators, through rlk.h. A process of its own: the host's allocator is set before any runtime.
#include <gtest/gtest.h>
#include <rlk/rlk.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace rlk::test {
namespace {

struct Allocator {
  std::mutex mutex;
  std::map<void*, uint64_t> live;
  std::string backend;
  int allocations = 0;

  void* allocate(uint64_t bytes) {
    const std::lock_guard lock(mutex);
    ++allocations;
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    live[memory] = bytes;
    return memory;
  }
  void deallocate(void* memory, uint64_t bytes) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(live.at(memory), bytes);
    live.erase(memory);
    std::free(memory);
  }
};

rlk_status allocate_on_device(void* self, const char* backend, uint32_t, void*, uint64_t bytes, void** out,
                              rlk_error*) {
  static_cast<Allocator*>(self)->backend = backend;
  *out = static_cast<Allocator*>(self)->allocate(bytes);
  return RLK_OK;
}
rlk_status deallocate_on_device(void* self, const char*, uint32_t, void*, void* memory, uint64_t bytes, rlk_error*) {
  static_cast<Allocator*>(self)->deallocate(memory, bytes);
  return RLK_OK;
}

TEST(EmbeddersMemory, IsUsedFromTheFirstRuntimeOn) {
  rlk_error error = RLK_ERROR_INIT;
  static Allocator host;  // plugins may hold memory until the process ends
  rlk_host_allocator host_table = {sizeof(rlk_host_allocator), 0, &host, nullptr, nullptr};
  EXPECT_EQ(rlk_set_host_allocator(&host_table, &error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("no allocate"), std::string::npos) << error.text;
  host_table.allocate = [](void* self, uint64_t bytes) { return static_cast<Allocator*>(self)->allocate(bytes); };
  host_table.deallocate = [](void* self, void* memory, uint64_t bytes) {
    static_cast<Allocator*>(self)->deallocate(memory, bytes);
  };
  ASSERT_EQ(rlk_set_host_allocator(&host_table, &error), RLK_OK) << error.text;

  Allocator device;
  rlk_device_allocator table = {sizeof(rlk_device_allocator), 0, &device, &allocate_on_device, nullptr};
  rlk_runtime_options options = RLK_RUNTIME_OPTIONS_INIT;
  options.device_allocator = &table;
  rlk_runtime* runtime = nullptr;
  EXPECT_EQ(rlk_runtime_create(&options, &runtime, &error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("no deallocate"), std::string::npos) << error.text;
  table.deallocate = &deallocate_on_device;
  ASSERT_EQ(rlk_runtime_create(&options, &runtime, &error), RLK_OK) << error.text;
  table = {};  // was copied

  rlk_stream* stream = nullptr;
  ASSERT_EQ(rlk_stream_create(runtime, "cpu", 0, 0, &stream, &error), RLK_OK) << error.text;
  void* memory = nullptr;
  ASSERT_EQ(rlk_allocate(stream, RLK_MEMORY_DEVICE, 1000, &memory, &error), RLK_OK) << error.text;
  EXPECT_EQ(device.live.count(memory), 1u);
  EXPECT_EQ(device.backend, "cpu");
  ASSERT_EQ(rlk_deallocate(stream, memory, &error), RLK_OK) << error.text;
  EXPECT_TRUE(device.live.empty()) << "at once";

  EXPECT_EQ(rlk_set_host_allocator(nullptr, &error), RLK_INVALID_ARGUMENT) << "a runtime was made";
  EXPECT_NE(std::string(error.text).find("before the first rlk_runtime_create"), std::string::npos) << error.text;
  ASSERT_EQ(rlk_stream_destroy(stream, &error), RLK_OK);
  ASSERT_EQ(rlk_runtime_destroy(runtime, &error), RLK_OK) << error.text;
}

}  // namespace
}  // namespace rlk::test
