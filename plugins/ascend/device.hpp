// What are a device, a stream and an event on Ascend? AscendCL wants a current context on every calling thread: each
// entry makes the right one current and puts the caller's back.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "plugins/composed/captured_stream.hpp"
#include "runtime.hpp"

namespace rlk::ascend {

// A thread that has had a context cannot be rid of it: where none was current, the device's stays.
struct ThreadContext {
  using Handle = AclContext;
  static Handle current();
  static void enter(Handle wanted);
  static void leave(Handle previous) noexcept;
};
using CurrentContext = sdk::CurrentScope<ThreadContext>;

// The first data error that an operator met on a stream, in device memory. aclnn has no compare-and-swap, so operators
// update all four numbers with one selection, in stream order.
struct DeviceErrorRecord {
  int64_t state;  // 0: none; otherwise rlk_run.tag + 1
  int64_t kind;   // RLK_DATA_*
  int64_t row;
  int64_t value;
};

// On no stream: done when they return, with AscendCL's code. A capture forbids that to a thread, and is broken by it;
// not so in relaxed mode, which is the thread's meanwhile.
int copy_now(void* to, const void* from, size_t bytes, int32_t kind);
int clear_now(void* memory, size_t bytes);
constexpr int32_t kCopyToDevice = 1, kCopyToHost = 2, kCopyOnDevice = 3;  // aclrtMemcpyKind

// The error in the record, which is empty afterwards. False where there is none.
bool take_error(DeviceErrorRecord* record, rlk_data_error& out);

// Whether a process with this chip captures graphs, by the functions that CANN has and the chips that it captures on.
bool captures_graphs(const std::string& soc);

class Device;

// aclmdlRI, as plugins/composed/captures.hpp has it: a graph is an aclmdlRI, which is known while it is captured.
struct AclCaptures {
  using Device = ascend::Device;
  using Record = DeviceErrorRecord*;
  using Queue = AclStream;
  using Event = AclEvent;
  using Graph = AclModel;
  using Place = AclContext;
  using Scope = CurrentContext;
  using Aside = CurrentContext;  // what needs more is done in a mode of its own, see copy_now
  static constexpr bool kOrdersLaunches = false;
  static constexpr const char* kNoEnd = "this CANN does not tell when a graph dies; one since 9 does";

  static composed::Captures& captures();
  static std::string why_not(const Device& device);
  static composed::CaptureStatus status(AclStream stream, uint64_t* key);
  static void begin(AclStream stream);
  static AclModel end(AclStream stream);
  static void launch(AclModel model, AclStream on);
  static void destroy(AclModel model);
  static void create(AclEvent* event);
  static void record(AclEvent event, AclStream on);
  static void wait(AclStream stream, AclEvent event);
  static void synchronize(AclEvent event);
  static void destroy_event(AclEvent event);
  static bool is_reached(AclEvent event);
  static bool take_error(DeviceErrorRecord* record, rlk_data_error& out) { return ascend::take_error(record, out); }
};
using ForeignRecords = composed::ForeignRecords<AclCaptures>;

// Everything that AscendCL tells of a device without aclrtSetDevice. The runtime must be initialised.
void describe(int32_t ordinal, rlk_device_properties& out);

class Device final : public sdk::Device {
public:
  explicit Device(int32_t ordinal);
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

  int32_t ordinal() const { return ordinal_; }
  AclContext context() const { return context_; }
  const std::string& soc() const { return soc_; }
  bool captures() const { return captures_; }

  // The compressed causal mask of the fused attention: 2048 x 2048 bytes, 1 above the diagonal. Made on the first call.
  // [thread-safe]
  void* attention_mask();

  // A cleared record. A record whose stream may still write to it is given back with an event behind that work.
  DeviceErrorRecord* take_record();
  void give_back_record(DeviceErrorRecord* record, AclEvent busy_until);
  ForeignRecords& foreign_records() { return foreign_records_; }

private:
  const int32_t ordinal_;
  AclContext context_ = nullptr;
  std::string soc_;
  bool captures_ = false;
  std::mutex mutex_;
  void* attention_mask_ = nullptr;
  sdk::Pool<DeviceErrorRecord*, AclEvent> records_;  // a null event: not in use
  ForeignRecords foreign_records_{*this};
};

class Stream final : public composed::CapturedStream<AclCaptures> {
public:
  // Owned streams are waited for and destroyed; others are borrowed.
  Stream(Device& device, AclStream native, AclContext context, bool owned);
  ~Stream() override;

  rlk_status query(rlk_data_error& data_error) override;
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& data_error) override;
  void wait(sdk::Event& event) override;
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) override;
  void fill(void* memory, uint8_t value, uint64_t bytes) override;
  // Needs aclrtLaunchHostFunc, which came with CANN 9.
  void enqueue_host_function(rlk_host_function function, void* user) override;

  AclContext context() const { return place_; }

private:
  const bool owned_;
};

class Event final : public sdk::Event {
public:
  Event(Device& device, bool timing);
  Event(Device& device, AclEvent borrowed);
  ~Event() override;
  void record(sdk::Stream& stream) override;
  rlk_status query() override;
  rlk_status synchronize(uint64_t timeout_ns) override;
  double elapsed_ms(sdk::Event& start) override;

  // AscendCL may not be asked to wait for an event that was never recorded.
  bool recorded() const { return recorded_.load(); }
  void* native() override { return native_; }

private:
  Device& device_;
  const bool owned_;
  AclEvent native_ = nullptr;
  std::atomic<bool> recorded_{false};
};

}  // namespace rlk::ascend
