// The device's memory, properties and current device of a thread, in terms of CNRT.
#include "device.hpp"

#include <rlk/sdk/memory.hpp>
#include <rlk/sdk/numa.hpp>

#include <algorithm>

namespace rlk::cambricon {
namespace {

constexpr size_t kRecordBytes = kRecordFields * sizeof(int32_t);

}  // namespace

CurrentDevice::CurrentDevice(int wanted) {
  const Runtime& r = runtime();
  int seen = -1;
  if (r.cnrtGetDevice(&seen) != 0) seen = -1;
  // A thread without a context shows device 0 all the same; going "back" there would open a context on it.
  void* context = nullptr;
  if (r.cnCtxGetCurrent != nullptr && (r.cnCtxGetCurrent(&context) != 0 || context == nullptr)) seen = -1;
  if (seen == wanted) return;
  check(r.cnrtSetDevice(wanted), "cnrtSetDevice");
  previous_ = seen;
}

CurrentDevice::~CurrentDevice() {
  if (previous_ >= 0) runtime().cnrtSetDevice(previous_);
}

bool RelaxedScope::exchange() {
  const auto function = runtime().cnrtThreadExchangeQueueCaptureMode;
  return function != nullptr && function(&mode_) == 0;
}

bool take_error(int32_t* record, rlk_data_error& out) {
  int32_t seen[kRecordFields] = {};
  check(runtime().cnrtMemcpy(seen, record, sizeof(seen), kToHost), "cnrtMemcpy");
  if (seen[kFound] == 0) return false;
  check(runtime().cnrtMemset(record, 0, sizeof(seen)), "cnrtMemset");
  out.kind = seen[kKind];
  out.tag = static_cast<uint32_t>(seen[kTag]);
  out.row = static_cast<uint32_t>(seen[kRow]) + static_cast<uint32_t>(seen[kFirstRow]);
  out.value = static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(seen[kValueHigh])) << 32 |
                                   static_cast<uint32_t>(seen[kValueLow]));
  return true;
}

Device::Device(int ordinal) : ordinal_(ordinal) {
  const RelaxedDevice current(ordinal_);
  check_cnnl(runtime().cnnlCreate(&handle_), "cnnlCreate");
}

Device::~Device() {
  try {
    const RelaxedDevice current(ordinal_);
    foreign_records_.close();
    // A wrapped stream may have left while its work still writes to the record that it had. The device is not waited
    // for: that would break a capture.
    records_.drain([](int32_t* record, CnrtNotifier busy_until) {
      if (busy_until != nullptr) {
        runtime().cnrtWaitNotifier(busy_until);
        runtime().cnrtNotifierDestroy(busy_until);
      }
      runtime().cnrtFree(record);
    });
    runtime().cnnlDestroy(handle_);
  } catch (const sdk::Error&) {
    // The device is gone and the memory with it.
  }
}

std::string name_of(int ordinal) {
  const Runtime& r = runtime();
  CnDevice device = 0;
  char name[256] = {};
  const bool known = r.cnDeviceGet != nullptr && r.cnDeviceGetName != nullptr && r.cnDeviceGet(&device, ordinal) == 0 &&
                     r.cnDeviceGetName(name, sizeof(name) - 1, device) == 0;
  return known ? name : "";
}

void describe(int ordinal, rlk_device_properties& out) {
  const Runtime& r = runtime();
  const auto ask = [&r, ordinal](int attribute) {
    int value = 0;
    const bool known = r.cnrtDeviceGetAttribute != nullptr && r.cnrtDeviceGetAttribute(&value, attribute, ordinal) == 0;
    return known && value > 0 ? static_cast<uint64_t>(value) : 0;
  };
  const std::string name = name_of(ordinal);
  sdk::detail::copy_text(out.name, (name.rfind("MLU", 0) == 0 ? "Cambricon " + name : name).c_str());
  const uint64_t isa = ask(kIsa);
  sdk::detail::copy_text(out.arch, isa != 0 ? sdk::format("mtp_%d", static_cast<int>(isa)).c_str() : name.c_str());
  out.compute_units = static_cast<uint32_t>(ask(kClusters) * ask(kCoresPerCluster));
  out.dlpack_device_type = 12;  // kDLExtDev: torch_mlu's tensors are of torch's PrivateUse1
  out.memory_bytes = ask(kMemoryMegabytes) << 20;
  out.l2_bytes = ask(kL2);
  char bus[32] = {};
  if (r.cnrtDeviceGetPCIBusId != nullptr && r.cnrtDeviceGetPCIBusId(bus, sizeof(bus) - 1, ordinal) == 0) {
    sdk::detail::copy_text(out.pci_bus_id, bus);
    out.numa_node = sdk::numa_node_of(bus);
  }
  int x = 0, y = 0, z = 0;
  if (r.cnrtDriverGetVersion != nullptr && r.cnrtDriverGetVersion(&x, &y, &z) == 0)
    sdk::detail::copy_text(out.driver_version, sdk::format("%d.%d.%d", x, y, z).c_str());
  sdk::detail::copy_text(out.runtime_version, r.cnrt_version.c_str());
}

void* Device::allocate(int32_t kind, uint64_t bytes) {
  const RelaxedDevice current(ordinal_);
  const auto made_by = [bytes](auto function, const char* name) {
    void* memory = nullptr;
    check(function(&memory, bytes), name);
    return memory;
  };
  return sdk::allocate_of_kind(
      kind, [&] { return made_by(runtime().cnrtMalloc, "cnrtMalloc"); },
      [&] { return made_by(runtime().cnrtHostMalloc, "cnrtHostMalloc"); },
      [&](void* memory) { deallocate(kind, memory); });
}

void Device::deallocate(int32_t kind, void* memory) {
  const RelaxedDevice current(ordinal_);
  if (kind == RLK_MEMORY_PINNED)
    check(runtime().cnrtFreeHost(memory), "cnrtFreeHost");
  else
    check(runtime().cnrtFree(memory), "cnrtFree");
}

void Device::memory_info(uint64_t& free_bytes, uint64_t& total_bytes) {
  const CurrentDevice current(ordinal_);
  size_t available = 0, total = 0;
  check(runtime().cnrtMemGetInfo(&available, &total), "cnrtMemGetInfo");
  free_bytes = available;
  total_bytes = total;
}

bool Device::can_access_peer(sdk::Device& peer) {
  unsigned can = 0;
  if (runtime().cnrtGetPeerAccessibility == nullptr) return false;
  check(runtime().cnrtGetPeerAccessibility(&can, ordinal_, static_cast<Device&>(peer).ordinal_),
        "cnrtGetPeerAccessibility");
  return can != 0;
}

void Device::native(rlk_native_device& out) {
  out.ordinal = ordinal_;
  out.device = ordinal_;
}

std::unique_ptr<sdk::Stream> Device::create_stream(int32_t priority) {
  const CurrentDevice current(ordinal_);
  const Runtime& r = runtime();
  CnrtQueue native = nullptr;
  int least = 0, greatest = 0;  // 7 and 0 where it is known: lower is more urgent, as ours, and nothing below 0
  const bool urgent = priority < 0 && r.cnrtQueueCreateWithPriority != nullptr &&
                      r.cnrtDeviceGetQueuePriorityRange != nullptr &&
                      r.cnrtDeviceGetQueuePriorityRange(&least, &greatest) == 0 && greatest < least;
  if (urgent)
    check(r.cnrtQueueCreateWithPriority(&native, 0, greatest), "cnrtQueueCreateWithPriority");
  else
    check(r.cnrtQueueCreate(&native), "cnrtQueueCreate");
  std::shared_ptr<Lane> lane;
  try {
    lane = std::make_shared<Lane>(ordinal_, native, true);
  } catch (...) {
    r.cnrtQueueDestroy(native);
    throw;
  }
  return std::make_unique<Stream>(*this, std::move(lane));
}

std::unique_ptr<sdk::Stream> Device::wrap_stream(void* native) {
  return std::make_unique<Stream>(*this, std::make_shared<Lane>(ordinal_, native, false));
}

std::unique_ptr<sdk::Event> Device::create_event(bool timing) {
  return std::make_unique<Event>(*this, timing);
}

std::unique_ptr<sdk::Event> Device::wrap_event(void* native) {
  if (native == nullptr) throw sdk::Error(RLK_INVALID_ARGUMENT, "the event to wrap is NULL; pass a cnrtNotifier_t");
  return std::make_unique<Event>(*this, native);
}

int32_t* Device::take_record() {
  const RelaxedDevice current(ordinal_);
  const auto is_free = [](CnrtNotifier busy_until) {
    if (busy_until == nullptr) return true;
    if (!is_done(runtime().cnrtQueryNotifier(busy_until), "cnrtQueryNotifier")) return false;
    check(runtime().cnrtNotifierDestroy(busy_until), "cnrtNotifierDestroy");
    return true;
  };
  int32_t* record = records_.take(is_free, [] {
    void* memory = nullptr;
    check(runtime().cnrtMalloc(&memory, kRecordBytes), "cnrtMalloc");
    return static_cast<int32_t*>(memory);
  });
  const int code = runtime().cnrtMemset(record, 0, kRecordBytes);
  if (code != 0) records_.give_back(record, nullptr);
  check(code, "cnrtMemset");
  return record;
}

}  // namespace rlk::cambricon
