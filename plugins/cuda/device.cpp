// Each entry of the SDK in terms of the driver API, with the device's context current, and the pool of records.
#include "device.hpp"

#include "probe.hpp"
#include "stream.hpp"

#include <cstring>

namespace rlk::cuda {

ContextScope::ContextScope(ContextHandle context) {
  ContextHandle current = nullptr;
  check(driver().context_current(&current), "asking for the current context");
  if (current == context) return;
  check(driver().context_push(context), "making the device's context current");
  pushed_ = true;
}

ContextScope::~ContextScope() {
  ContextHandle popped = nullptr;
  if (pushed_) driver().context_pop(&popped);
}

namespace {
// A record has a cache line of its own.
constexpr size_t kRecordBytes = 128;
constexpr size_t kPageBytes = 8192;
static_assert(sizeof(rlk_data_error_record) <= kRecordBytes);
}  // namespace

RecordPool::~RecordPool() {
  for (void* page : pages_) driver().host_free(page);
}

RecordPool::Slot RecordPool::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) {
    void* page = nullptr;
    check(driver().host_allocate(&page, kPageBytes, kHostAllocPortableMapped), "allocating data-error records");
    pages_.push_back(page);
    std::memset(page, 0, kPageBytes);
    DevicePointer device = 0;
    check(driver().host_device_pointer(&device, page, 0), "mapping data-error records");
    for (size_t at = 0; at < kPageBytes; at += kRecordBytes) {
      free_.push_back(Slot{reinterpret_cast<rlk_data_error_record*>(static_cast<char*>(page) + at),
                           reinterpret_cast<void*>(device + at)});
    }
  }
  const Slot slot = free_.back();
  free_.pop_back();
  return slot;
}

void RecordPool::give_back(const Slot& slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  *slot.host = rlk_data_error_record();
  free_.push_back(slot);
}

Record::Record(std::shared_ptr<RecordPool> pool) : pool_(std::move(pool)), slot_(pool_->take()) {}
Record::~Record() {
  pool_->give_back(slot_);
}

// The device writes it: nothing the compiler knows of.
bool Record::holds_error() const noexcept {
  return static_cast<const volatile rlk_data_error_record*>(slot_.host)->state != 0;
}

bool Record::read(rlk_data_error& out) noexcept {
  volatile rlk_data_error_record* record = slot_.host;
  if (record->state == 0) return false;
  out.kind = record->kind;
  out.tag = record->tag;
  out.row = record->row;
  out.value = record->value;
  record->state = 0;
  return true;
}

CudaDevice::CudaDevice(int ordinal) {
  check(driver().device_get(&device_, ordinal), "opening the device");
  major_ = attribute(kAttributeMajor);
  minor_ = attribute(kAttributeMinor);
  multiprocessors_ = attribute(kAttributeMultiprocessors);
  shared_limit_ = attribute(kAttributeSharedOptIn);
  memory_pools_ =
      attribute(kAttributeMemoryPools) != 0 && driver().allocate_async != nullptr && driver().free_async != nullptr;
  // Two transfers a clock; nine tenths of the pins' rate is what good kernels reach. Newer drivers may report no clock.
  const double rate = 2.0 * attribute(kAttributeMemoryClock) * 1e3 * attribute(kAttributeBusWidth) / 8 * 0.9 * 1e-6;
  if (rate > 0) bytes_per_us_ = rate;
  // Dense 16-bit tensor core rate per multiprocessor and us, as the mma.sync instructions reach it.
  matrix_per_us_ = static_cast<double>(multiprocessors_) * (major_ >= 9 ? 2.4e6 : 1.8e6);
  check(driver().context_retain(&context_, device_), "retaining the device's primary context");
  try {
    const ContextScope scope(context_);
    kernels_ = std::make_unique<Kernels>();
    records_ = std::make_shared<RecordPool>();
  } catch (...) {
    driver().context_release(device_);
    throw;
  }
}

CudaDevice::~CudaDevice() {
  try {
    const ContextScope scope(context_);
    kernels_.reset();
    records_.reset();
  } catch (...) {
    // A lost device cannot free anything; its context goes below.
  }
  driver().context_release(device_);
}

int CudaDevice::attribute(int which) const {
  int value = 0;
  return driver().device_attribute(&value, which, device_) == kSuccess ? value : 0;
}

void CudaDevice::properties(rlk_device_properties& out) {
  out.simt_width = static_cast<uint32_t>(attribute(kAttributeWarpSize));
  out.compute_units = static_cast<uint32_t>(multiprocessors_);
  out.l2_bytes = static_cast<uint64_t>(attribute(kAttributeL2Bytes));
  size_t bytes = 0;
  check(driver().device_memory(&bytes, device_), "asking for the device's memory");
  out.memory_bytes = bytes;
  check(driver().device_name(out.name, sizeof(out.name), device_), "asking for the device's name");
  const std::string arch = sdk::format("sm_%d%d", major_, minor_);
  const std::string pci = sdk::format("%04x:%02x:%02x.0", attribute(kAttributePciDomain), attribute(kAttributePciBus),
                                      attribute(kAttributePciDevice));
  int version = 0;
  check(driver().driver_version(&version), "asking for the driver's version");
  const std::string cuda = sdk::format("%d.%d", version / 1000, version % 1000 / 10);
  sdk::detail::copy_text(out.arch, arch.c_str());
  sdk::detail::copy_text(out.pci_bus_id, pci.c_str());
  sdk::detail::copy_text(out.driver_version, kernel_driver_version().c_str());
  sdk::detail::copy_text(out.runtime_version, cuda.c_str());
}

void* CudaDevice::allocate(int32_t kind, uint64_t bytes) {
  const ContextScope scope(context_);
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
  const ContextScope scope(context_);
  if (kind == RLK_MEMORY_PINNED) {
    check(driver().host_free(memory), "freeing pinned host memory");
  } else {
    check(driver().memory_free(reinterpret_cast<DevicePointer>(memory)), "freeing device memory");
  }
}

void CudaDevice::memory_info(uint64_t& free_bytes, uint64_t& total_bytes) {
  const ContextScope scope(context_);
  size_t available = 0, total = 0;
  check(driver().memory_info(&available, &total), "asking for free memory");
  free_bytes = available;
  total_bytes = total;
}

int32_t CudaDevice::pointer_kind(const void* pointer) {
  const ContextScope scope(context_);
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
  const ContextScope scope(context_);
  int least = 0, greatest = 0;  // greatest priority is the lowest number
  check(driver().stream_priority_range(&least, &greatest), "asking for stream priorities");
  const int clamped = priority > least ? least : priority < greatest ? greatest : priority;
  StreamHandle handle = nullptr;
  check(driver().stream_create(&handle, kStreamNonBlocking, clamped), "creating a stream");
  return std::make_unique<CudaStream>(*this, handle, true);
}

std::unique_ptr<sdk::Stream> CudaDevice::wrap_stream(void* native) {
  const ContextScope scope(context_);
  return std::make_unique<CudaStream>(*this, static_cast<StreamHandle>(native), false);
}

std::unique_ptr<sdk::Event> CudaDevice::create_event(bool timing) {
  return std::make_unique<CudaEvent>(*this, timing);
}

FunctionHandle CudaDevice::kernel(Image image, const std::string& name, int dynamic_shared) {
  const ContextScope scope(context_);
  return kernels_->get(image, name, dynamic_shared);
}

std::shared_ptr<Record> CudaDevice::new_record() {
  const ContextScope scope(context_);
  return std::make_shared<Record>(records_);
}

}  // namespace rlk::cuda
