// Each entry of the SDK in terms of the driver API, with the device's context current.
#include "device.hpp"

#include "probe.hpp"
#include "stream.hpp"

#include <cstring>
#include <fstream>

namespace rlk::cuda {

ContextHandle ContextStack::current() {
  ContextHandle context = nullptr;
  check(driver().context_current(&context), "asking for the current context");
  return context;
}

void ContextStack::enter(ContextHandle wanted) {
  check(driver().context_push(wanted), "making the device's context current");
}

void ContextStack::leave(ContextHandle) noexcept {
  ContextHandle popped = nullptr;
  driver().context_pop(&popped);
}

RelaxedMode::RelaxedMode() {
  if (driver().exchange_capture_mode != nullptr) driver().exchange_capture_mode(&mode_);
}

RelaxedMode::~RelaxedMode() {
  if (driver().exchange_capture_mode != nullptr) driver().exchange_capture_mode(&mode_);
}

namespace {

// 0 for an attribute that this driver does not know.
int attribute(int device, int which) {
  int value = 0;
  return driver().device_attribute(&value, which, device) == kSuccess ? value : 0;
}

// -1 when the system does not tell.
int32_t numa_node_of(const std::string& pci_bus_id) {
  std::ifstream file("/sys/bus/pci/devices/" + pci_bus_id + "/numa_node");
  int32_t node = -1;
  return file >> node ? node : -1;
}

}  // namespace

void describe(int ordinal, rlk_device_properties& out) {
  int device = 0;
  check(driver().device_get(&device, ordinal), "looking at the device");
  // With unified addressing, pinned memory has one address for the host and for kernels.
  const bool maps = attribute(device, kAttributeMapsHostMemory) != 0;
  if (maps && attribute(device, kAttributeUnifiedAddressing) != 0) out.flags |= RLK_DEVICE_MAPPED_PINNED;
  out.simt_width = static_cast<uint32_t>(attribute(device, kAttributeWarpSize));
  out.compute_units = static_cast<uint32_t>(attribute(device, kAttributeMultiprocessors));
  out.l2_bytes = static_cast<uint64_t>(attribute(device, kAttributeL2Bytes));
  size_t bytes = 0;
  check(driver().device_memory(&bytes, device), "asking for the device's memory");
  out.memory_bytes = bytes;
  check(driver().device_name(out.name, sizeof(out.name), device), "asking for the device's name");
  const std::string pci = sdk::format("%04x:%02x:%02x.0", static_cast<unsigned>(attribute(device, kAttributePciDomain)),
                                      static_cast<unsigned>(attribute(device, kAttributePciBus)),
                                      static_cast<unsigned>(attribute(device, kAttributePciDevice)));
  out.numa_node = numa_node_of(pci);
  // The second version tells the slices of a partitioned card apart.
  const auto ask_uuid = driver().device_uuid_v2 != nullptr ? driver().device_uuid_v2 : driver().device_uuid;
  Uuid uuid{};
  if (ask_uuid != nullptr && ask_uuid(&uuid, device) == kSuccess) std::memcpy(out.uuid, uuid.bytes, sizeof(out.uuid));
  int version = 0;
  check(driver().driver_version(&version), "asking for the driver's version");
  const std::string arch =
      sdk::format("sm_%d%d", attribute(device, kAttributeMajor), attribute(device, kAttributeMinor));
  const std::string cuda = sdk::format("%d.%d", version / 1000, version % 1000 / 10);
  sdk::detail::copy_text(out.arch, arch.c_str());
  sdk::detail::copy_text(out.pci_bus_id, pci.c_str());
  sdk::detail::copy_text(out.driver_version, kernel_driver_version().c_str());
  sdk::detail::copy_text(out.runtime_version, cuda.c_str());
}

CudaDevice::CudaDevice(int ordinal) : ordinal_(ordinal) {
  check(driver().device_get(&device_, ordinal), "opening the device");
  major_ = attribute(device_, kAttributeMajor);
  minor_ = attribute(device_, kAttributeMinor);
  multiprocessors_ = attribute(device_, kAttributeMultiprocessors);
  shared_limit_ = attribute(device_, kAttributeSharedOptIn);
  memory_pools_ = attribute(device_, kAttributeMemoryPools) != 0 && driver().allocate_async != nullptr &&
                  driver().free_async != nullptr;
  // Two transfers a clock; nine tenths of the pins' rate is what good kernels reach. Newer drivers may report no clock.
  const double rate =
      2.0 * attribute(device_, kAttributeMemoryClock) * 1e3 * attribute(device_, kAttributeBusWidth) / 8 * 0.9 * 1e-6;
  if (rate > 0) bytes_per_us_ = rate;
  // Dense 16-bit tensor core rate per multiprocessor and us, as the mma.sync instructions reach it.
  matrix_per_us_ = static_cast<double>(multiprocessors_) * (major_ >= 9 ? 2.4e6 : 1.8e6);
  const RelaxedMode relaxed;
  check(driver().context_retain(&context_, device_), "retaining the device's primary context");
  try {
    kernels_ = std::make_unique<Kernels>();
  } catch (...) {
    driver().context_release(device_);
    throw;
  }
}

CudaDevice::~CudaDevice() {
  try {
    const RelaxedScope scope(context_);
    kernels_.reset();
  } catch (...) {
    // A lost device cannot free anything; its context goes below.
  }
  driver().context_release(device_);
}

void* CudaDevice::allocate(int32_t kind, uint64_t bytes) {
  const RelaxedScope scope(context_);
  if (kind == RLK_MEMORY_DEVICE) {
    DevicePointer memory = 0;
    const Result code = driver().memory_allocate(&memory, bytes);
    if (code == kOutOfMemory) {
      size_t available = 0, total = 0;
      driver().memory_info(&available, &total);
      throw sdk::Error(RLK_OUT_OF_MEMORY,
                       sdk::format("%llu bytes of device memory were asked for; %zu of %zu are free",
                                   static_cast<unsigned long long>(bytes), available, total),
                       code, "cuda");
    }
    check(code, "allocating device memory");
    return reinterpret_cast<void*>(memory);
  }
  if (kind != RLK_MEMORY_PINNED) {
    throw sdk::Error(RLK_INVALID_ARGUMENT,
                     sdk::format("memory kind %d; the kinds are 0 (device) and 1 (pinned)", kind));
  }
  void* memory = nullptr;
  check(driver().host_allocate(&memory, bytes, kHostAllocPortableMapped), "allocating pinned host memory");
  return memory;
}

void CudaDevice::deallocate(int32_t kind, void* memory) {
  if (memory == nullptr) return;
  const RelaxedScope scope(context_);
  if (kind == RLK_MEMORY_PINNED) {
    check(driver().host_free(memory), "freeing pinned host memory");
  } else {
    check(driver().memory_free(reinterpret_cast<DevicePointer>(memory)), "freeing device memory");
  }
}

void CudaDevice::memory_info(uint64_t& free_bytes, uint64_t& total_bytes) {
  const RelaxedScope scope(context_);
  size_t available = 0, total = 0;
  check(driver().memory_info(&available, &total), "asking for free memory");
  free_bytes = available;
  total_bytes = total;
}

int32_t CudaDevice::pointer_kind(const void* pointer) {
  const RelaxedScope scope(context_);
  unsigned type = 0, managed = 0;
  const DevicePointer address = reinterpret_cast<DevicePointer>(pointer);
  if (driver().pointer_attribute(&type, kPointerMemoryType, address) != kSuccess) return RLK_POINTER_UNKNOWN;
  driver().pointer_attribute(&managed, kPointerIsManaged, address);
  return type == 1 && managed == 0 ? RLK_POINTER_PINNED : RLK_POINTER_DEVICE;
}

bool CudaDevice::can_access_peer(sdk::Device& peer) {
  int can = 0;
  check(driver().device_can_access_peer(&can, device_, static_cast<CudaDevice&>(peer).device_),
        "asking for peer access");
  return can != 0;
}

std::unique_ptr<sdk::Stream> CudaDevice::create_stream(int32_t priority) {
  const RelaxedScope scope(context_);
  int least = 0, greatest = 0;  // greatest priority is the lowest number
  check(driver().stream_priority_range(&least, &greatest), "asking for stream priorities");
  const int clamped = priority > least ? least : priority < greatest ? greatest : priority;
  StreamHandle handle = nullptr;
  check(driver().stream_create(&handle, kStreamNonBlocking, clamped), "creating a stream");
  return std::make_unique<CudaStream>(*this, handle, true);
}

void CudaDevice::native(rlk_native_device& out) {
  out.ordinal = ordinal_;
  out.device = device_;
  out.context = context_;
}

std::unique_ptr<sdk::Stream> CudaDevice::wrap_stream(void* native) {
  return std::make_unique<CudaStream>(*this, static_cast<StreamHandle>(native), false);
}

std::unique_ptr<sdk::Event> CudaDevice::create_event(bool timing) {
  return std::make_unique<CudaEvent>(*this, timing);
}

std::unique_ptr<sdk::Event> CudaDevice::wrap_event(void* native) {
  if (native == nullptr) throw sdk::Error(RLK_INVALID_ARGUMENT, "the event to wrap is NULL; pass a CUevent");
  return std::make_unique<CudaEvent>(*this, static_cast<EventHandle>(native));
}

FunctionHandle CudaDevice::kernel(Image image, const std::string& name, int dynamic_shared) {
  const RelaxedScope scope(context_);
  return kernels_->get(image, name, dynamic_shared);
}

}  // namespace rlk::cuda
