// The device of the golden plugin: host memory, and streams whose work is done when enqueue returns. It does not claim
// unified memory, so a host treats it like a real accelerator: it allocates, copies and stages.
#pragma once

#include <rlk/sdk.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace golden_plugin {

class Stream : public rlk::sdk::Stream {
public:
  explicit Stream(void* native = nullptr) : native_(native != nullptr ? native : this) {}
  void* native() override { return native_; }
  rlk_status query(rlk_data_error&) override { return RLK_OK; }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return RLK_OK; }
  void wait(rlk::sdk::Event&) override {}
  void copy(void* destination, const void* source, uint64_t bytes, int32_t) override {
    if (bytes > 0) std::memcpy(destination, source, bytes);
  }
  void fill(void* memory, uint8_t value, uint64_t bytes) override {
    if (bytes > 0) std::memset(memory, value, bytes);
  }
  void enqueue_host_function(rlk_host_function function, void* user) override { function(user); }

private:
  void* native_;
};

class Event : public rlk::sdk::Event {
public:
  using Clock = std::chrono::steady_clock;
  void record(rlk::sdk::Stream&) override { recorded_ = Clock::now(); }
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
  double elapsed_ms(rlk::sdk::Event& start) override {
    return std::chrono::duration<double, std::milli>(recorded_ - static_cast<Event&>(start).recorded_).count();
  }

private:
  Clock::time_point recorded_;
};

class Device : public rlk::sdk::Device {
public:
  static void describe(rlk_device_properties& out) {
    out.flags = RLK_DEVICE_INLINE_STREAMS | RLK_DEVICE_MAPPED_PINNED;
    out.compute_units = 1;
    out.dlpack_device_type = 12;  // kDLExtDev
    out.memory_bytes = bytes_of(_SC_PHYS_PAGES);
    rlk::sdk::detail::copy_text(out.name, "golden host memory");
    rlk::sdk::detail::copy_text(out.arch, "host");
    rlk::sdk::detail::copy_text(out.runtime_version, "1");
  }
  void* allocate(int32_t kind, uint64_t bytes) override {
    if (kind != RLK_MEMORY_DEVICE && kind != RLK_MEMORY_PINNED) {
      throw rlk::sdk::Error(RLK_UNSUPPORTED, rlk::sdk::format("memory kind %d; known are 0 (device) and 1 (pinned)",
                                                              static_cast<int>(kind)));
    }
    void* memory = bytes > UINT64_MAX - kAlignment ? nullptr : std::aligned_alloc(kAlignment, round_up(bytes));
    if (memory == nullptr) {
      throw rlk::sdk::Error(RLK_OUT_OF_MEMORY, rlk::sdk::format("no host memory left for %llu bytes",
                                                                static_cast<unsigned long long>(bytes)));
    }
    return memory;
  }
  void deallocate(int32_t, void* memory) override { std::free(memory); }
  void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) override {
    free_bytes = bytes_of(_SC_AVPHYS_PAGES);
    total_bytes = bytes_of(_SC_PHYS_PAGES);
  }
  std::unique_ptr<rlk::sdk::Stream> create_stream(int32_t) override { return std::make_unique<Stream>(); }
  // Any stream of this device will do for any other: work is done at once.
  std::unique_ptr<rlk::sdk::Stream> wrap_stream(void* native) override { return std::make_unique<Stream>(native); }
  std::unique_ptr<rlk::sdk::Event> create_event(bool) override { return std::make_unique<Event>(); }

private:
  static constexpr uint64_t kAlignment = 256;
  static uint64_t round_up(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  static uint64_t bytes_of(int pages) {
    return static_cast<uint64_t>(sysconf(pages)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
};

}  // namespace golden_plugin
