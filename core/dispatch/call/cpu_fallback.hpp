// A call of a device's stream that the CPU serves: its tensors to pinned memory, the CPU's plan in a host function on
// the same stream, the results back. Order holds and nothing blocks; a device without host functions blocks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/dispatch/call/call.hpp"

namespace rlk::core {

// CPU streams for host functions: one per call that runs at the moment. [thread-safe]
class CpuStreams {
public:
  CpuStreams(DeviceState& cpu, Counters& counters) : cpu_(cpu), counters_(counters) {}
  rlk_status take(std::unique_ptr<Stream>* out, rlk_error* error);
  void give(std::unique_ptr<Stream> stream) noexcept;
  uint32_t made() const { return made_.load(std::memory_order_relaxed); }

private:
  DeviceState& cpu_;
  Counters& counters_;
  std::atomic<uint32_t> made_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> idle_;
};

// The plan (entered by the caller, who leaves it) is one of the CPU's candidate. The call does not capture. What goes
// wrong inside the host function the stream's next query or synchronize reports. cpu_streams outlives the stream's
// work. The cost is counted, in both counters; a call that `fallback` wants announced is logged with it.
// [the stream's thread]
rlk_status run_on_cpu(const Call& call, const Candidate& candidate, const std::shared_ptr<CachedPlan>& plan,
                      std::shared_ptr<CpuStreams> cpu_streams, OpCounters& counters, FallbackCounter& fallback,
                      rlk_error* error);

// What a call of these tensors would copy, were it staged. Data pointers may be NULL.
struct FallbackBytes {
  uint64_t to_host = 0, to_device = 0;  // bytes
  uint64_t copies = 0;

  // At the speed of a bus as most machines have it: an estimate before anything was measured.
  static constexpr double kAssumedBytesPerSecond = 12e9, kAssumedCopyUs = 5;
  double estimated_us() const {
    return static_cast<double>(to_host + to_device) / kAssumedBytesPerSecond * 1e6 +
           static_cast<double>(copies) * kAssumedCopyUs;
  }
};
FallbackBytes fallback_bytes(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                             std::span<const rlk_tensor* const> outputs);

}  // namespace rlk::core
