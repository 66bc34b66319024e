// Each entry of the SDK in terms of AscendCL: memory, streams, events, records of data errors.
#include <rlk/sdk/memory.hpp>
#include <rlk/sdk/numa.hpp>

#include <algorithm>
#include <limits>

#include "device.hpp"

namespace rlk::ascend {
namespace {

constexpr int32_t kHugeFirst = 0;                           // aclrtMemMallocPolicy
constexpr uint32_t kFastLaunchAndSync = 3;                  // stream flags
constexpr uint32_t kEventOrder = 3;                         // wait between streams, query
constexpr uint32_t kEventTiming = 8;                        // time stamps
constexpr int32_t kStreamComplete = 0, kEventComplete = 1;  // status numbers differ
constexpr int32_t kInfoMemoryBytes = 301;                   // ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE
constexpr uint64_t kMillisecond = 1000000;                  // AscendCL's deadlines count them
constexpr uint64_t kForever = std::numeric_limits<uint64_t>::max();
constexpr int64_t kMaskSize = 2048;  // rows and columns

// Milliseconds for a deadline in nanoseconds, rounded up.
int32_t milliseconds(uint64_t ns) {
  const uint64_t ms = (ns - 1) / kMillisecond + 1;
  return static_cast<int32_t>(std::min<uint64_t>(ms, std::numeric_limits<int32_t>::max()));
}

void copy_name(char* to, size_t size, const std::string& from) {
  std::snprintf(to, size, "%s", from.c_str());
}

class RelaxedScope {
public:
  RelaxedScope() : exchanged_(exchange()) {}
  ~RelaxedScope() {
    if (exchanged_) exchange();
  }
  RelaxedScope(const RelaxedScope&) = delete;
  RelaxedScope& operator=(const RelaxedScope&) = delete;

private:
  bool exchange() {
    const auto function = runtime().aclmdlRICaptureThreadExchangeMode;
    return function != nullptr && function(&mode_) == 0;
  }
  int32_t mode_ = kAclCaptureRelaxed;
  const bool exchanged_;
};

}  // namespace

int copy_now(void* to, const void* from, size_t bytes, int32_t kind) {
  const RelaxedScope scope;
  return runtime().aclrtMemcpy(to, bytes, from, bytes, kind);
}

int clear_now(void* memory, size_t bytes) {
  const RelaxedScope scope;
  return runtime().aclrtMemset(memory, bytes, 0, bytes);
}

bool take_error(DeviceErrorRecord* record, rlk_data_error& out) {
  DeviceErrorRecord seen{};
  check(copy_now(&seen, record, sizeof(seen), kCopyToHost), "aclrtMemcpy");
  if (seen.state == 0) return false;
  check(clear_now(record, sizeof(seen)), "aclrtMemset");
  out.kind = static_cast<int32_t>(seen.kind);
  out.tag = static_cast<uint32_t>(seen.state - 1);
  out.row = seen.row;
  out.value = seen.value;
  return true;
}

AclContext ThreadContext::current() {
  AclContext context = nullptr;
  return runtime().aclrtGetCurrentContext(&context) == 0 ? context : nullptr;
}

void ThreadContext::enter(AclContext wanted) {
  check(runtime().aclrtSetCurrentContext(wanted), "aclrtSetCurrentContext");
}

void ThreadContext::leave(AclContext previous) noexcept {
  if (previous != nullptr) runtime().aclrtSetCurrentContext(previous);
}

// --- device ----------------------------------------------------------------------------------------------------------

Device::Device(int32_t ordinal) : ordinal_(ordinal) {
  // aclrtSetDevice makes the device's default context; it is what this plugin works in.
  const AclContext callers = ThreadContext::current();
  check(runtime().aclrtSetDevice(ordinal), "aclrtSetDevice");
  check(runtime().aclrtGetCurrentContext(&context_), "aclrtGetCurrentContext");
  if (callers != nullptr && callers != context_)
    check(runtime().aclrtSetCurrentContext(callers), "aclrtSetCurrentContext");
  soc_ = soc_name();
  captures_ = captures_graphs(soc_);
}

Device::~Device() {
  try {
    const CurrentContext current(context_);
    foreign_records_.close();
    // A wrapped stream may have left while its work still writes to the record that it had. The device is not waited
    // for: that would break a capture.
    records_.drain([](DeviceErrorRecord* record, AclEvent busy_until) {
      if (busy_until != nullptr) {
        runtime().aclrtSynchronizeEvent(busy_until);
        runtime().aclrtDestroyEvent(busy_until);
      }
      runtime().aclrtFree(record);
    });
    if (attention_mask_ != nullptr) runtime().aclrtFree(attention_mask_);
  } catch (const sdk::Error&) {
    // The context is gone and the memory with it.
  }
}

void describe(int32_t ordinal, rlk_device_properties& out) {
  const Runtime& r = runtime();
  const auto device = static_cast<uint32_t>(ordinal);
  const auto ask = [device](auto function, int32_t which) {
    int64_t value = 0;
    const bool is_known = function != nullptr && function(device, which, &value) == 0 && value > 0;
    return is_known ? static_cast<uint64_t>(value) : 0;
  };
  out.dlpack_device_type = 12;  // kDLExtDev: torch_npu's tensors are of torch's PrivateUse1
  out.memory_bytes = ask(r.aclrtGetDeviceInfo, kInfoMemoryBytes);  // an older CANN tells it of open devices only
  out.compute_units = static_cast<uint32_t>(ask(r.aclGetDeviceCapability, 0));  // AI cores
  out.l2_bytes = ask(r.aclGetDeviceCapability, 2);
  const std::string name = soc_name();
  copy_name(out.name, sizeof(out.name), "Huawei " + name);
  copy_name(out.arch, sizeof(out.arch), name);
  if (r.aclrtDeviceGetPCIBusId != nullptr) {
    char bus[32] = {};
    if (r.aclrtDeviceGetPCIBusId(ordinal, bus, sizeof(bus)) == 0) {
      copy_name(out.pci_bus_id, sizeof(out.pci_bus_id), bus);
      out.numa_node = sdk::numa_node_of(bus);
    }
  }
  int32_t major = 0, minor = 0, patch = 0;
  if (r.aclrtGetVersion != nullptr && r.aclrtGetVersion(&major, &minor, &patch) == 0) {
    copy_name(out.runtime_version, sizeof(out.runtime_version), sdk::format("%d.%d.%d", major, minor, patch));
  }
}

void* Device::allocate(int32_t kind, uint64_t bytes) {
  const CurrentContext current(context_);
  const auto on_device = [bytes] {
    void* memory = nullptr;
    check(runtime().aclrtMalloc(&memory, bytes, kHugeFirst), "aclrtMalloc");
    return memory;
  };
  const auto pinned = [bytes] {
    void* memory = nullptr;
    check(runtime().aclrtMallocHost(&memory, bytes), "aclrtMallocHost");
    return memory;
  };
  return sdk::allocate_of_kind(kind, on_device, pinned, [&](void* memory) { deallocate(kind, memory); });
}

void Device::deallocate(int32_t kind, void* memory) {
  const CurrentContext current(context_);
  if (kind == RLK_MEMORY_PINNED)
    check(runtime().aclrtFreeHost(memory), "aclrtFreeHost");
  else
    check(runtime().aclrtFree(memory), "aclrtFree");
}

void Device::memory_info(uint64_t& free_bytes, uint64_t& total_bytes) {
  const CurrentContext current(context_);
  size_t available = 0, total = 0;
  check(runtime().aclrtGetMemInfo(kAclHbm, &available, &total), "aclrtGetMemInfo");
  free_bytes = available;
  total_bytes = total;
}

bool Device::can_access_peer(sdk::Device& peer) {
  int32_t can = 0;
  if (runtime().aclrtDeviceCanAccessPeer == nullptr) return false;
  check(runtime().aclrtDeviceCanAccessPeer(&can, ordinal_, static_cast<Device&>(peer).ordinal_),
        "aclrtDeviceCanAccessPeer");
  return can != 0;
}

void Device::native(rlk_native_device& out) {
  out.ordinal = ordinal_;
  out.device = ordinal_;
  out.context = context_;
}

std::unique_ptr<sdk::Stream> Device::create_stream(int32_t /*priority*/) {
  // All streams are alike: level 0 is the most urgent that AscendCL has, and the only one that is everywhere.
  const CurrentContext current(context_);
  AclStream native = nullptr;
  check(runtime().aclrtCreateStreamWithConfig(&native, 0, kFastLaunchAndSync), "aclrtCreateStreamWithConfig");
  try {
    return std::make_unique<Stream>(*this, native, context_, true);
  } catch (...) {
    runtime().aclrtDestroyStream(native);
    throw;
  }
}

std::unique_ptr<sdk::Stream> Device::wrap_stream(void* native) {
  // The stream belongs to the caller's context of this device, if the caller is in one.
  int32_t current = -1;
  const bool is_here = runtime().aclrtGetDevice(&current) == 0 && current == ordinal_;
  const AclContext callers = is_here ? ThreadContext::current() : nullptr;
  return std::make_unique<Stream>(*this, native, callers != nullptr ? callers : context_, false);
}

std::unique_ptr<sdk::Event> Device::create_event(bool timing) {
  return std::make_unique<Event>(*this, timing);
}

std::unique_ptr<sdk::Event> Device::wrap_event(void* native) {
  if (native == nullptr) throw sdk::Error(RLK_INVALID_ARGUMENT, "the event to wrap is NULL; pass an aclrtEvent");
  return std::make_unique<Event>(*this, native);
}

void* Device::attention_mask() {
  const std::lock_guard lock(mutex_);
  if (attention_mask_ != nullptr) return attention_mask_;
  std::vector<uint8_t> hidden(kMaskSize * kMaskSize, 0);
  for (int64_t i = 0; i < kMaskSize; ++i) {
    std::fill(hidden.begin() + i * kMaskSize + i + 1, hidden.begin() + (i + 1) * kMaskSize, uint8_t{1});
  }
  const CurrentContext current(context_);
  void* memory = nullptr;
  check(runtime().aclrtMalloc(&memory, hidden.size(), kHugeFirst), "aclrtMalloc");
  try {
    check(copy_now(memory, hidden.data(), hidden.size(), kCopyToDevice), "aclrtMemcpy");
  } catch (...) {
    runtime().aclrtFree(memory);
    throw;
  }
  return attention_mask_ = memory;
}

DeviceErrorRecord* Device::take_record() {
  const CurrentContext current(context_);
  constexpr size_t kBytes = sizeof(DeviceErrorRecord);
  const auto is_free = [](AclEvent busy_until) {
    if (busy_until == nullptr) return true;
    int32_t status = kEventComplete;
    check(runtime().aclrtQueryEventStatus(busy_until, &status), "aclrtQueryEventStatus");
    if (status != kEventComplete) return false;
    check(runtime().aclrtDestroyEvent(busy_until), "aclrtDestroyEvent");
    return true;
  };
  DeviceErrorRecord* record = records_.take(is_free, [] {
    void* memory = nullptr;
    check(runtime().aclrtMalloc(&memory, kBytes, kHugeFirst), "aclrtMalloc");
    return static_cast<DeviceErrorRecord*>(memory);
  });
  const int code = clear_now(record, kBytes);
  if (code != 0) records_.give_back(record, nullptr);
  check(code, "aclrtMemset");
  return record;
}

void Device::give_back_record(DeviceErrorRecord* record, AclEvent busy_until) {
  records_.give_back(record, busy_until);
}

// --- stream ----------------------------------------------------------------------------------------------------------

Stream::Stream(Device& device, AclStream native, AclContext context, bool owned)
    : CapturedStream(device, native, context), owned_(owned) {}

Stream::~Stream() {
  try {
    const CurrentContext current(context());
    const Runtime& r = runtime();
    if (owned_) {
      abandon_capture();
      r.aclrtSynchronizeStream(native_);
      r.aclrtDestroyStream(native_);
    }
    give_back_record(owned_);
  } catch (...) {
    // Without the event the plugin cannot know when the record is free: it is lost rather than reused too early.
  }
}

rlk_status Stream::query(rlk_data_error& data_error) {
  const CurrentContext current(context());
  refuse_while_capturing("a query");
  int32_t status = kStreamComplete;
  check(runtime().aclrtStreamQuery(native_, &status), "aclrtStreamQuery");
  return status == kStreamComplete ? read_records(data_error) : RLK_NOT_READY;
}

rlk_status Stream::synchronize(uint64_t timeout_ns, rlk_data_error& data_error) {
  if (timeout_ns < kMillisecond) return sdk::poll(timeout_ns, [&] { return query(data_error); });
  const CurrentContext current(context());
  refuse_while_capturing("a synchronization");
  const int code = timeout_ns == kForever
                       ? runtime().aclrtSynchronizeStream(native_)
                       : runtime().aclrtSynchronizeStreamWithTimeout(native_, milliseconds(timeout_ns));
  if (code == kAclStreamSyncTimeout) return RLK_TIMEOUT;
  check(code, "aclrtSynchronizeStream");
  return read_records(data_error);
}

void Stream::wait(sdk::Event& event) {
  Event& other = static_cast<Event&>(event);
  if (!other.recorded()) return;
  const CurrentContext current(context());
  check(runtime().aclrtStreamWaitEvent(native_, other.native()), "aclrtStreamWaitEvent");
}

void Stream::copy(void* destination, const void* source, uint64_t bytes, int32_t kind) {
  if (bytes == 0) return;
  const CurrentContext current(context());
  const int32_t native_kind = kind == RLK_COPY_HOST_TO_DEVICE   ? kCopyToDevice
                              : kind == RLK_COPY_DEVICE_TO_HOST ? kCopyToHost
                                                                : kCopyOnDevice;
  check(runtime().aclrtMemcpyAsync(destination, bytes, source, bytes, native_kind, native_), "aclrtMemcpyAsync");
}

void Stream::fill(void* memory, uint8_t value, uint64_t bytes) {
  if (bytes == 0) return;
  const CurrentContext current(context());
  check(runtime().aclrtMemsetAsync(memory, bytes, value, bytes, native_), "aclrtMemsetAsync");
}

void Stream::enqueue_host_function(rlk_host_function function, void* user) {
  if (runtime().aclrtLaunchHostFunc == nullptr) {
    throw sdk::Error(RLK_UNSUPPORTED, "this CANN lacks aclrtLaunchHostFunc, which came with 9");
  }
  const CurrentContext current(context());
  check(runtime().aclrtLaunchHostFunc(native_, function, user), "aclrtLaunchHostFunc");
}

// --- event -----------------------------------------------------------------------------------------------------------

// Its owner may have recorded it, and AscendCL does not tell: it is taken for recorded.
Event::Event(Device& device, AclEvent borrowed) : device_(device), owned_(false), native_(borrowed), recorded_(true) {}

Event::Event(Device& device, bool timing) : device_(device), owned_(true) {
  const CurrentContext current(device_.context());
  const Runtime& r = runtime();
  const uint32_t flags = kEventOrder | (timing ? kEventTiming : 0);
  // Events of the Ex kind may be recorded again without a reset.
  const auto create =
      r.aclrtCreateEventExWithFlag != nullptr ? r.aclrtCreateEventExWithFlag : r.aclrtCreateEventWithFlag;
  check(create(&native_, flags), "aclrtCreateEventExWithFlag");
}

Event::~Event() {
  if (!owned_) return;
  try {
    const CurrentContext current(device_.context());
    runtime().aclrtDestroyEvent(native_);
  } catch (const sdk::Error&) {
    // The context is gone and the event with it.
  }
}

void Event::record(sdk::Stream& stream) {
  const CurrentContext current(static_cast<Stream&>(stream).context());
  check(runtime().aclrtRecordEvent(native_, stream.native()), "aclrtRecordEvent");
  recorded_ = true;
}

rlk_status Event::query() {
  if (!recorded_) return RLK_OK;
  const CurrentContext current(device_.context());
  int32_t status = kEventComplete;
  check(runtime().aclrtQueryEventStatus(native_, &status), "aclrtQueryEventStatus");
  return status == kEventComplete ? RLK_OK : RLK_NOT_READY;
}

rlk_status Event::synchronize(uint64_t timeout_ns) {
  if (!recorded_) return RLK_OK;
  if (timeout_ns < kMillisecond) return sdk::poll(timeout_ns, [&] { return query(); });
  const CurrentContext current(device_.context());
  const int code = timeout_ns == kForever
                       ? runtime().aclrtSynchronizeEvent(native_)
                       : runtime().aclrtSynchronizeEventWithTimeout(native_, milliseconds(timeout_ns));
  if (code == kAclEventSyncTimeout) return RLK_TIMEOUT;
  check(code, "aclrtSynchronizeEvent");
  return RLK_OK;
}

double Event::elapsed_ms(sdk::Event& start) {
  const CurrentContext current(device_.context());
  float ms = 0;
  check(runtime().aclrtEventElapsedTime(&ms, static_cast<Event&>(start).native_, native_), "aclrtEventElapsedTime");
  return ms;
}

}  // namespace rlk::ascend
