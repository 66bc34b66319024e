// An NVIDIA device: its primary context, memory and kernels.
#pragma once

#include "driver.hpp"
#include "kernels.hpp"

#include <memory>

namespace rlk::cuda {

// How the driver keeps a thread's context: on a stack.
struct ContextStack {
  using Handle = ContextHandle;
  static Handle current();
  static void enter(Handle wanted);
  static void leave(Handle previous) noexcept;
};
using ContextScope = sdk::CurrentScope<ContextStack>;

// While a thread captures in global mode, the driver refuses allocations, queries, creations and the like to every
// other thread, and the refusal breaks the capture. In relaxed mode, which is this thread's own for a scope, it does
// not.
class RelaxedMode {
public:
  RelaxedMode();
  ~RelaxedMode();
  RelaxedMode(const RelaxedMode&) = delete;
  RelaxedMode& operator=(const RelaxedMode&) = delete;

private:
  int mode_ = kCaptureRelaxed;
};

// Both: what everything but enqueueing runs in.
class RelaxedScope {
public:
  explicit RelaxedScope(ContextHandle context) : context_(context) {}

private:
  ContextScope context_;
  RelaxedMode mode_;
};

// Everything known of a device without a context on it. The driver must be initialised.
void describe(int ordinal, rlk_device_properties& out);

class CudaDevice final : public sdk::Device {
public:
  explicit CudaDevice(int ordinal);
  ~CudaDevice() override;

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

  ContextHandle context() const noexcept { return context_; }
  // dynamic_shared: the most that any launch of this kernel will ask for.
  FunctionHandle kernel(Image image, const std::string& name, int dynamic_shared = 0);

  int major() const noexcept { return major_; }
  int arch() const noexcept { return 10 * major_ + minor_; }
  int64_t multiprocessors() const noexcept { return multiprocessors_; }
  int shared_limit() const noexcept { return shared_limit_; }  // bytes a block may opt in to
  bool has_memory_pools() const noexcept { return memory_pools_; }
  // Estimates for query: moving bytes through device memory, and matrix products of 16-bit numbers.
  double bytes_us(double bytes) const noexcept { return bytes / bytes_per_us_; }
  double matrix_us(double operations) const noexcept { return operations / matrix_per_us_; }

private:
  const int ordinal_;
  int device_ = 0;
  ContextHandle context_ = nullptr;
  int major_ = 0, minor_ = 0, shared_limit_ = 0;
  int64_t multiprocessors_ = 0;
  bool memory_pools_ = false;
  double bytes_per_us_ = 1e6, matrix_per_us_ = 1e8;
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace rlk::cuda
