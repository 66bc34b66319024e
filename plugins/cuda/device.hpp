// An NVIDIA device: its primary context, memory, kernels and data-error records.
#pragma once

#include "driver.hpp"
#include "kernels.hpp"

#include <memory>
#include <mutex>
#include <vector>

namespace rlk::cuda {

// Makes a context current on this thread for a scope; costs one look when it already is.
class ContextScope {
public:
  explicit ContextScope(ContextHandle context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

private:
  bool pushed_ = false;
};

// The records that kernels write data errors to: pinned host memory that the device reaches, so that the host reads
// them without a copy. A record returns to its pool when the last stream or graph that used it is gone.
class RecordPool {
public:
  struct Slot {
    rlk_data_error_record* host = nullptr;
    void* device = nullptr;
  };
  ~RecordPool();  // with the context current
  Slot take();    // with the context current [thread-safe]
  void give_back(const Slot& slot);

private:
  std::mutex mutex_;
  std::vector<void*> pages_;
  std::vector<Slot> free_;
};

class Record {
public:
  explicit Record(std::shared_ptr<RecordPool> pool);
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  void* device() const noexcept { return slot_.device; }
  // Moves a data error out, and forgets it; false when there is none. The work that could write one must be done.
  bool read(rlk_data_error& out) noexcept;
  bool holds_error() const noexcept;

private:
  std::shared_ptr<RecordPool> pool_;
  RecordPool::Slot slot_;
};

class CudaDevice final : public sdk::Device {
public:
  explicit CudaDevice(int ordinal);
  ~CudaDevice() override;

  void properties(rlk_device_properties& out) override;
  void* allocate(int32_t kind, uint64_t bytes) override;
  void deallocate(int32_t kind, void* memory) override;
  void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) override;
  int32_t pointer_kind(const void* pointer) override;
  bool can_access_peer(sdk::Device& peer) override;
  std::unique_ptr<sdk::Stream> create_stream(int32_t priority) override;
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override;
  std::unique_ptr<sdk::Event> create_event(bool timing) override;

  ContextHandle context() const noexcept { return context_; }
  // dynamic_shared: the most that any launch of this kernel will ask for.
  FunctionHandle kernel(Image image, const std::string& name, int dynamic_shared = 0);
  std::shared_ptr<Record> new_record();

  int major() const noexcept { return major_; }
  int arch() const noexcept { return 10 * major_ + minor_; }
  int64_t multiprocessors() const noexcept { return multiprocessors_; }
  int shared_limit() const noexcept { return shared_limit_; }  // bytes a block may opt in to
  bool has_memory_pools() const noexcept { return memory_pools_; }
  // Estimates for query: moving bytes through device memory, and matrix products of 16-bit numbers.
  double bytes_us(double bytes) const noexcept { return bytes / bytes_per_us_; }
  double matrix_us(double operations) const noexcept { return operations / matrix_per_us_; }

private:
  int attribute(int which) const;

  int device_ = 0;
  ContextHandle context_ = nullptr;
  int major_ = 0, minor_ = 0, shared_limit_ = 0;
  int64_t multiprocessors_ = 0;
  bool memory_pools_ = false;
  double bytes_per_us_ = 1e6, matrix_per_us_ = 1e8;
  std::unique_ptr<Kernels> kernels_;
  std::shared_ptr<RecordPool> records_;
};

}  // namespace rlk::cuda
