// A device: its place (calls.hpp), memory and kernels.
#pragma once

#include "calls.hpp"
#include "kernels.hpp"

#include <functional>
#include <memory>

namespace rlk::simt::host {

// Everything known of a device that is not open. The driver must be initialised.
void describe(int ordinal, rlk_device_properties& out);

class Device final : public sdk::Device {
public:
  explicit Device(int ordinal);
  ~Device() override;

  void* allocate(int32_t kind, uint64_t bytes) override;
  void deallocate(int32_t kind, void* memory) override;
  void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) override;
  int32_t pointer_kind(const void* pointer) override;
  bool can_access_peer(sdk::Device& peer) override;
  void native(rlk_native_device& out) override;
  std::unique_ptr<sdk::Stream> create_stream(int32_t priority) override;
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override;
  std::unique_ptr<sdk::Event> create_event(bool timing) override;
  std::unique_ptr<sdk::Event> wrap_event(void* native) override;

  const Place& place() const noexcept { return place_; }
  // image: a file of kernels. dynamic_shared: the most that any launch of this kernel will ask for.
  FunctionHandle kernel(const char* image, const std::string& name, int dynamic_shared = 0);

  // Of kernels that wait for those ahead of them.
  Start start() const noexcept { return start_; }

  // What a part of the plugin keeps as long as the device is open: made, with the device current, when it is first
  // asked for. [thread-safe]
  std::shared_ptr<void> kept(const void* key, const std::function<std::shared_ptr<void>()>& make);

  // Why no operator runs on this device.
  const sdk::Refusal& refusal() const noexcept { return refusal_; }
  const std::string& arch() const noexcept { return arch_; }  // "sm_90", as the profile has it
  int simt_width() const noexcept { return simt_width_; }
  int64_t multiprocessors() const noexcept { return multiprocessors_; }
  int shared_limit() const noexcept { return shared_limit_; }  // bytes that a block may have
  bool has_memory_pools() const noexcept { return memory_pools_; }
  // Estimates for query: moving bytes through device memory, and matrix products of 16-bit numbers.
  double bytes_us(double bytes) const noexcept { return bytes / bytes_per_us_; }
  double matrix_us(double operations) const noexcept { return operations / matrix_per_us_; }

private:
  const int ordinal_;
  int device_ = 0;
  Place place_;
  sdk::Refusal refusal_;
  std::string arch_;
  int simt_width_ = 0, shared_limit_ = 0;
  int64_t multiprocessors_ = 1;
  bool memory_pools_ = false;
  Start start_ = Start::after;
  double bytes_per_us_ = 1e6, matrix_per_us_ = 1e8;
  std::unique_ptr<Kernels> kernels_;
  std::mutex kept_mutex_;
  std::map<const void*, std::shared_ptr<void>> kept_;
};

}  // namespace rlk::simt::host
