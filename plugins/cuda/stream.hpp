// Streams and events of a device.
#pragma once

#include "device.hpp"

namespace rlk::cuda {

class CudaEvent final : public sdk::Event {
public:
  CudaEvent(CudaDevice& device, bool timing);
  ~CudaEvent() override;
  void record(sdk::Stream& stream) override;
  rlk_status query() override;
  rlk_status synchronize(uint64_t timeout_ns) override;
  double elapsed_ms(sdk::Event& start) override;
  EventHandle handle() const noexcept { return handle_; }

private:
  CudaDevice& device_;
  EventHandle handle_ = nullptr;
  bool timing_;
};

class CudaStream final : public sdk::Stream {
public:
  CudaStream(CudaDevice& device, StreamHandle handle, bool owned);
  ~CudaStream() override;
  void* native() override { return handle_; }
  rlk_status query(rlk_data_error& data_error) override;
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& data_error) override;
  void wait(sdk::Event& event) override;
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) override;
  void fill(void* memory, uint8_t value, uint64_t bytes) override;
  void* data_error_record() override { return record_->device(); }
  void enqueue_host_function(rlk_host_function function, void* user) override;
  void* allocate_async(uint64_t bytes) override;
  void deallocate_async(void* memory) override;

  CudaDevice& device() const noexcept { return device_; }
  StreamHandle handle() const noexcept { return handle_; }
  const std::shared_ptr<Record>& record() const noexcept { return record_; }
  // The stream will also answer for data errors of this record: a graph writes those of the stream it was captured on.
  void watch(const std::shared_ptr<Record>& record);
  bool capturing();

private:
  void refuse_while_capturing(const char* what);
  rlk_status finished(rlk_data_error& data_error);

  CudaDevice& device_;
  StreamHandle handle_;
  bool owned_;
  std::shared_ptr<Record> record_;
  std::vector<std::shared_ptr<Record>> watched_;
};

}  // namespace rlk::cuda
