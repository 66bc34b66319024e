// Streams and events of a device.
#pragma once

#include "device.hpp"

namespace rlk::simt::host {

class Event final : public sdk::Event {
public:
  Event(Device& device, bool timing);
  Event(Device& device, EventHandle borrowed);
  ~Event() override;
  void record(sdk::Stream& stream) override;
  rlk_status query() override;
  rlk_status synchronize(uint64_t timeout_ns) override;
  double elapsed_ms(sdk::Event& start) override;
  void* native() override { return handle_; }
  EventHandle handle() const noexcept { return handle_; }

private:
  Device& device_;
  EventHandle handle_ = nullptr;
  bool owned_;
  bool timing_;
};

class Stream final : public sdk::Stream {
public:
  Stream(Device& device, StreamHandle handle, bool owned);
  ~Stream() override;
  void* native() override { return handle_; }
  rlk_status query(rlk_data_error& data_error) override;
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& data_error) override;
  void wait(sdk::Event& event) override;
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) override;
  void fill(void* memory, uint8_t value, uint64_t bytes) override;
  void enqueue_host_function(rlk_host_function function, void* user) override;
  void* allocate_async(uint64_t bytes) override;
  void deallocate_async(void* memory) override;
  void copy_peer(void* to, sdk::Device& to_device, const void* from, sdk::Device& from_device, uint64_t bytes) override;
  uint64_t capture_id() override;
  void capture_retain(rlk_host_function release, void* user) override;

  void begin_capture();
  std::unique_ptr<sdk::Graph> end_capture();

  StreamHandle handle() const noexcept { return handle_; }

private:
  void refuse_while_capturing(const char* what);
  void abandon_capture() noexcept;

  Device& device_;
  StreamHandle handle_;
  bool owned_;
};

}  // namespace rlk::simt::host
