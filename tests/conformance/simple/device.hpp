// The device of the simple plugin: host memory, and streams that do their work in the call that asks for it.
#pragma once

#include <rlk/sdk.hpp>

#include <functional>
#include <vector>

namespace rlk::simple {

class SimpleDevice : public sdk::Device {
public:
  static void describe(rlk_device_properties& out);
  void* allocate(int32_t kind, uint64_t bytes) override;
  void deallocate(int32_t kind, void* memory) override;
  void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) override;
  std::unique_ptr<sdk::Stream> create_stream(int32_t priority) override;
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override;
  std::unique_ptr<sdk::Event> create_event(bool timing) override;
};

class SimpleStream : public sdk::Stream {
public:
  explicit SimpleStream(void* native = nullptr) : native_(native != nullptr ? native : this) {}
  void* native() override { return native_; }
  rlk_status query(rlk_data_error& data_error) override;
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& data_error) override;
  void wait(sdk::Event&) override {}
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) override;
  void fill(void* memory, uint8_t value, uint64_t bytes) override;
  uint64_t capture_id() override { return capture_id_; }

  // Does the work, or keeps it for the graph that is being captured.
  void submit(std::function<void()> work);
  void begin_capture();
  std::unique_ptr<sdk::Graph> end_capture();

private:
  void* native_;
  uint64_t capture_id_ = 0;
  std::vector<std::function<void()>> captured_;
};

class SimpleEvent : public sdk::Event {
public:
  void record(sdk::Stream&) override {}
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
};

// Writes the record of the run, unless an error is there already.
void report(const sdk::Run& run, int32_t kind, int64_t row, int64_t value);

}  // namespace rlk::simple
