// The CPU as a device: host memory, streams that run inline, events that are instants.
#pragma once

#include <rlk/sdk/plugin.hpp>

#include <chrono>
#include <string>

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

class CpuDevice : public sdk::Device {
public:
  explicit CpuDevice(const sdk::Host& host) : host_(host) {}
  void* allocate(int32_t kind, uint64_t bytes) override;  // both kinds are host memory
  void deallocate(int32_t kind, void* memory) override;
  void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) override;
  std::unique_ptr<sdk::Stream> create_stream(int32_t priority) override;
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override;  // NULL only: there is no native stream
  std::unique_ptr<sdk::Event> create_event(bool timing) override;

  // The host's thread pool as the kernels want it; lives as long as the device.
  ParallelFor parallel() const;

private:
  sdk::Host host_;
};

// Work is done when enqueue returns, so nothing is left to wait for.
class CpuStream : public sdk::Stream {
public:
  void* native() override { return nullptr; }
  rlk_status query(rlk_data_error&) override { return RLK_OK; }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return RLK_OK; }
  void wait(sdk::Event&) override {}  // an event that was recorded has been reached
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) override;
  void fill(void* memory, uint8_t value, uint64_t bytes) override;
  void enqueue_host_function(rlk_host_function function, void* user) override { function(user); }
};

class CpuEvent : public sdk::Event {
public:
  void record(sdk::Stream&) override { at_ = std::chrono::steady_clock::now(); }
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
  double elapsed_ms(sdk::Event& start) override;

private:
  std::chrono::steady_clock::time_point at_{};
};

void describe_cpu(const sdk::Host& host, rlk_device_properties& out);

// "AMD EPYC 9655", or the architecture when the system does not tell.
std::string cpu_model();

}  // namespace rlk::cpu
