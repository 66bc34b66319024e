// What are a device, a stream and an event on an MLU? CNRT works on the calling thread's device: each entry makes the
// right one current and puts the caller's back. A stream is a queue with a CNNL handle of its own, an event a notifier.
#pragma once

#include <atomic>
#include <mutex>

#include "runtime.hpp"

namespace rlk::cambricon {

// The device of this thread, for a scope.
class CurrentDevice {
public:
  explicit CurrentDevice(int wanted);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

private:
  int previous_ = -1;  // to go back to; -1: nothing was current, or the right one was
};

// The first data error that an operator met on a stream, in device memory, as 32-bit integers: what CNNL selects and
// compares. The row counts from kFirstRow.
enum RecordField { kFound, kTag, kKind, kValueLow, kValueHigh, kRow, kFirstRow, kRecordFields };

class Device final : public sdk::Device {
public:
  explicit Device(int ordinal);
  ~Device() override;

  void* allocate(int32_t kind, uint64_t bytes) override;
  void deallocate(int32_t kind, void* memory) override;
  void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) override;
  bool can_access_peer(sdk::Device& peer) override;
  void native(rlk_native_device& out) override;
  std::unique_ptr<sdk::Stream> create_stream(int32_t priority) override;
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override;
  std::unique_ptr<sdk::Event> create_event(bool timing) override;
  std::unique_ptr<sdk::Event> wrap_event(void* native) override;

  int ordinal() const { return ordinal_; }
  // For questions about workspaces: streams have handles of their own. A handle serves one thread at a time.
  CnnlHandle query_handle() const { return handle_; }
  std::mutex& query_mutex() { return mutex_; }

  // A cleared record. One that its stream may still write to is given back with a notifier behind that work.
  int32_t* take_record();
  void give_back_record(int32_t* record, CnrtNotifier busy_until) { records_.give_back(record, busy_until); }

private:
  const int ordinal_;
  CnnlHandle handle_ = nullptr;
  std::mutex mutex_;
  sdk::Pool<int32_t*, CnrtNotifier> records_;  // a null notifier: not in use
};

// Everything that the runtime tells of a device that is not set.
void describe(int ordinal, rlk_device_properties& out);
std::string name_of(int ordinal);  // "MLU590-M9", or empty

class Stream final : public sdk::Stream {
public:
  // Owned queues are waited for and destroyed; others are borrowed.
  Stream(Device& device, CnrtQueue native, bool owned);
  ~Stream() override;

  void* native() override { return native_; }
  rlk_status query(rlk_data_error& data_error) override;
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& data_error) override;
  void wait(sdk::Event& event) override;
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) override;
  void fill(void* memory, uint8_t value, uint64_t bytes) override;
  void enqueue_host_function(rlk_host_function function, void* user) override;
  void* allocate_async(uint64_t bytes) override;
  void deallocate_async(void* memory) override;
  void copy_peer(void* to, sdk::Device& to_device, const void* from, sdk::Device& from_device, uint64_t bytes) override;

  Device& device() { return device_; }
  CnnlHandle handle() const { return handle_; }
  // For operators that can meet data errors: the host's record needs a compare-and-swap, which CNNL has not.
  int32_t* error_record() {
    record_in_use_ = true;
    return record_;
  }

private:
  rlk_status read_record(rlk_data_error& data_error);

  Device& device_;
  const CnrtQueue native_;
  const bool owned_;
  CnnlHandle handle_ = nullptr;
  int32_t* record_ = nullptr;
  bool record_in_use_ = false;  // an operator may have written since it was last read
};

class Event final : public sdk::Event {
public:
  Event(Device& device, bool timing);
  Event(Device& device, CnrtNotifier borrowed);
  ~Event() override;
  void record(sdk::Stream& stream) override;
  rlk_status query() override;
  rlk_status synchronize(uint64_t timeout_ns) override;
  double elapsed_ms(sdk::Event& start) override;
  void* native() override { return native_; }
  bool placed() const { return placed_.load(); }

private:
  Device& device_;
  const bool owned_;
  CnrtNotifier native_ = nullptr;
  std::atomic<bool> placed_{false};  // CNRT does not say what waiting for a notifier that was never placed does
};

}  // namespace rlk::cambricon
