// What are a device, a stream and an event on an MLU? CNRT works on the calling thread's device: each entry makes the
// right one current and puts the caller's back. A stream is a queue with a CNNL handle of its own, an event a notifier.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "plugins/composed/captured_stream.hpp"
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

// For what is no work for a queue (memory, questions, what is done at once): a capture in global mode forbids that to
// every thread, and is broken by it, but for threads in relaxed mode. An older CNRT does not exchange a thread's mode.
class RelaxedScope {
public:
  RelaxedScope() : is_exchanged_(exchange()) {}
  ~RelaxedScope() {
    if (is_exchanged_) exchange();
  }
  RelaxedScope(const RelaxedScope&) = delete;
  RelaxedScope& operator=(const RelaxedScope&) = delete;

private:
  bool exchange();
  int mode_ = kCaptureRelaxed;
  const bool is_exchanged_;
};
class RelaxedDevice {
public:
  explicit RelaxedDevice(int wanted) : current_(wanted) {}

private:
  const CurrentDevice current_;
  const RelaxedScope relaxed_;
};

// The first data error that an operator met on a stream, in device memory, as 32-bit integers: what CNNL selects and
// compares. The row counts from kFirstRow.
enum RecordField { kFound, kTag, kKind, kValueLow, kValueHigh, kRow, kFirstRow, kRecordFields };
// The error in the record, which is empty afterwards. False where there is none.
bool take_error(int32_t* record, rlk_data_error& out);

class Device;

// Task topologies, as plugins/composed/captures.hpp has it: a graph is an entity of one. By the programming guide what
// was captured has no tie to its queue, nor an entity to its topology.
struct CnrtCaptures {
  using Device = cambricon::Device;
  using Record = int32_t*;
  using Queue = CnrtQueue;
  using Event = CnrtNotifier;
  using Graph = CnrtEntity;
  using Place = int;
  using Scope = CurrentDevice;
  using Aside = RelaxedDevice;
  static constexpr bool kOrdersLaunches = true;  // [header] one invocation at a time, behind those before it
  static constexpr const char* kNoEnd =
      "CNRT does not tell when an entity dies that others made: its user objects are a topology's";

  static composed::Captures& captures();
  static std::string why_not(const Device&) { return runtime().no_captures; }
  static composed::CaptureStatus status(CnrtQueue queue, uint64_t* key);
  static void begin(CnrtQueue queue);
  static CnrtEntity end(CnrtQueue queue);
  static void launch(CnrtEntity entity, CnrtQueue on);
  static void destroy(CnrtEntity entity);
  static void create(CnrtNotifier* notifier);
  static void record(CnrtNotifier notifier, CnrtQueue on);
  static void wait(CnrtQueue queue, CnrtNotifier notifier);
  static void synchronize(CnrtNotifier notifier);
  static void destroy_event(CnrtNotifier notifier);
  static bool is_reached(CnrtNotifier notifier);
  static bool take_error(int32_t* record, rlk_data_error& out) { return cambricon::take_error(record, out); }
};
using ForeignRecords = composed::ForeignRecords<CnrtCaptures>;

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
  bool captures() const { return runtime().no_captures.empty(); }
  // For questions about workspaces: streams have handles of their own. A handle serves one thread at a time.
  CnnlHandle query_handle() const { return handle_; }
  std::mutex& query_mutex() { return mutex_; }

  // A cleared record. One that its stream may still write to is given back with a notifier behind that work.
  int32_t* take_record();
  void give_back_record(int32_t* record, CnrtNotifier busy_until) { records_.give_back(record, busy_until); }
  ForeignRecords& foreign_records() { return foreign_records_; }

private:
  const int ordinal_;
  CnnlHandle handle_ = nullptr;
  std::mutex mutex_;
  sdk::Pool<int32_t*, CnrtNotifier> records_;  // a null notifier: not in use
  ForeignRecords foreign_records_{*this};
};

// Everything that the runtime tells of a device that is not set.
void describe(int ordinal, rlk_device_properties& out);
std::string name_of(int ordinal);  // "MLU590-M9", or empty

// A queue and the CNNL handle that works on it, which goes first. Graphs of what was captured with it keep it: no
// public text says whether they need the handle. torch_mlu gives its handles other queues while graphs live, and keeps
// the handles.
struct Lane {
  Lane(int device, CnrtQueue of, bool is_owned);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const int ordinal;
  const CnrtQueue queue;
  const bool owned;  // the queue
  CnnlHandle handle = nullptr;
};

class Stream final : public composed::CapturedStream<CnrtCaptures> {
public:
  // Owned queues are waited for and destroyed; others are borrowed.
  Stream(Device& device, std::shared_ptr<Lane> lane);
  ~Stream() override;

  rlk_status query(rlk_data_error& data_error) override;
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& data_error) override;
  void wait(sdk::Event& event) override;
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) override;
  void fill(void* memory, uint8_t value, uint64_t bytes) override;
  void enqueue_host_function(rlk_host_function function, void* user) override;
  void* allocate_async(uint64_t bytes) override;
  void deallocate_async(void* memory) override;
  void copy_peer(void* to, sdk::Device& to_device, const void* from, sdk::Device& from_device, uint64_t bytes) override;

  CnnlHandle handle() const { return lane_->handle; }
  // What is captured from now on may need the handle.
  void keep_handle() { keep_for_capture(lane_); }

private:
  std::shared_ptr<Lane> lane_;
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
