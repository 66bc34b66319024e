// Each entry of the SDK in terms of the driver's table, with the device current.
#include "device.hpp"

#include "stream.hpp"

#include <rlk/sdk/memory.hpp>
#include <rlk/sdk/numa.hpp>

#include <algorithm>
#include <cctype>
#include <cstring>

namespace rlk::simt::host {
namespace {

// "0000:01:00.0", as the system writes it.
std::string pci_id_of(int device) {
  const Attributes& at = driver().attributes;
  char text[64] = "";
  if (driver().device_pci_id != nullptr && driver().device_pci_id(text, sizeof(text), device) == kSuccess) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  }
  return sdk::format("%04x:%02x:%02x.0", static_cast<unsigned>(attribute(device, at.pci_domain)),
                     static_cast<unsigned>(attribute(device, at.pci_bus)),
                     static_cast<unsigned>(attribute(device, at.pci_device)));
}

void* allocate_on_device(uint64_t bytes) {
  const Driver& table = driver();
  void* memory = nullptr;
  const Result code = table.memory_allocate(&memory, bytes);
  if (code != kSuccess && table.status_of(code) == RLK_OUT_OF_MEMORY) {
    size_t available = 0, total = 0;
    table.memory_info(&available, &total);
    throw sdk::Error(RLK_OUT_OF_MEMORY,
                     sdk::format("%llu bytes of device memory were asked for; %zu of %zu are free",
                                 static_cast<unsigned long long>(bytes), available, total),
                     code, table.domain);
  }
  check(code, "allocating device memory");
  return memory;
}

}  // namespace

void describe(int ordinal, rlk_device_properties& out) {
  const Driver& table = driver();
  const Attributes& at = table.attributes;
  const int device = device_of(ordinal);
  // With unified addressing, pinned memory has one address for the host and for kernels.
  const bool maps = attribute(device, at.maps_host_memory) != 0 && attribute(device, at.unified_addressing) != 0;
  if (maps || table.pinned_is_mapped) out.flags |= RLK_DEVICE_MAPPED_PINNED;
  out.dlpack_device_type = table.dlpack_device_type;
  out.simt_width = static_cast<uint32_t>(attribute(device, at.warp_size));
  out.compute_units = static_cast<uint32_t>(attribute(device, at.multiprocessors));
  out.l2_bytes = static_cast<uint64_t>(attribute(device, at.l2_bytes));
  size_t bytes = 0;
  check(table.device_memory(&bytes, device), "asking for the device's memory");
  out.memory_bytes = bytes;
  check(table.device_name(out.name, sizeof(out.name), device), "asking for the device's name");
  const std::string pci = pci_id_of(device);
  out.numa_node = sdk::numa_node_of(pci);
  const auto ask_uuid = table.device_uuid_v2 != nullptr ? table.device_uuid_v2 : table.device_uuid;
  Uuid uuid{};
  if (ask_uuid != nullptr && ask_uuid(&uuid, device) == kSuccess) std::memcpy(out.uuid, uuid.bytes, sizeof(out.uuid));
  const Profile profile = table.profile(device);
  sdk::detail::copy_text(out.arch, profile.arch.c_str());
  sdk::detail::copy_text(out.pci_bus_id, pci.c_str());
  sdk::detail::copy_text(out.driver_version, profile.driver_version.c_str());
  sdk::detail::copy_text(out.runtime_version, profile.runtime_version.c_str());
}

Device::Device(int ordinal) : ordinal_(ordinal), device_(device_of(ordinal)) {
  const Driver& table = driver();
  const Attributes& at = table.attributes;
  const Profile profile = table.profile(device_);
  refusal_ = profile.refusal;
  arch_ = profile.arch;
  if (profile.waits_in_kernels && table.launch_early != nullptr) start_ = Start::early;
  simt_width_ = needed_attribute(device_, at.warp_size, "asking for the device's SIMT width");
  if (!refusal_ && simt_width_ != 32 && simt_width_ != 64) {
    refusal_ = sdk::Support::no("SIMT_WIDTH", sdk::format("the device executes %d threads together; the kernels know "
                                                          "widths of 32 and 64",
                                                          simt_width_));
  }
  multiprocessors_ = std::max(attribute(device_, at.multiprocessors), 1);
  shared_limit_ = attribute(device_, at.shared_bytes);
  memory_pools_ =
      attribute(device_, at.memory_pools) != 0 && table.allocate_async != nullptr && table.free_async != nullptr;
  // Two transfers a clock; nine tenths of the pins' rate is what good kernels reach. Newer drivers may report no clock.
  const double rate =
      2.0 * attribute(device_, at.memory_clock) * 1e3 * attribute(device_, at.bus_width) / 8 * 0.9 * 1e-6;
  if (rate > 0) bytes_per_us_ = rate;
  matrix_per_us_ = static_cast<double>(multiprocessors_) * profile.matrix_per_us;
  const RelaxedMode relaxed;
  place_ = retain_place(device_);
  try {
    kernels_ = std::make_unique<Kernels>(device_);
  } catch (...) {
    release_place(device_);
    throw;
  }
}

Device::~Device() {
  try {
    const RelaxedScope scope(place_);
    kept_.clear();
    kernels_.reset();
  } catch (...) {
    // A lost device cannot free memory; its context is still released below.
  }
  release_place(device_);
}

void* Device::allocate(int32_t kind, uint64_t bytes) {
  const RelaxedScope scope(place_);
  return sdk::allocate_of_kind(
      kind, [bytes] { return allocate_on_device(bytes); }, [bytes] { return allocate_pinned(bytes); },
      [&](void* memory) { deallocate(kind, memory); });
}

void Device::deallocate(int32_t kind, void* memory) {
  if (memory == nullptr) return;
  const RelaxedScope scope(place_);
  if (kind == RLK_MEMORY_PINNED) {
    check(driver().host_free(memory), "freeing pinned host memory");
  } else {
    check(driver().memory_free(memory), "freeing device memory");
  }
}

void Device::memory_info(uint64_t& free_bytes, uint64_t& total_bytes) {
  const RelaxedScope scope(place_);
  size_t available = 0, total = 0;
  check(driver().memory_info(&available, &total), "asking for free memory");
  free_bytes = available;
  total_bytes = total;
}

int32_t Device::pointer_kind(const void* pointer) {
  const Driver& table = driver();
  if (table.pointer_attribute == nullptr) {
    throw sdk::Error(RLK_UNSUPPORTED, "this driver does not tell whose memory an address is");
  }
  const RelaxedScope scope(place_);
  unsigned type = 0, managed = 0;
  if (table.pointer_attribute(&type, kPointerMemoryType, pointer) != kSuccess) return RLK_POINTER_UNKNOWN;
  // 0 is memory that the runtime does not know (hipMemoryTypeUnregistered), but where it is the number of host memory.
  if (type == 0 && table.host_memory_type != 0) return RLK_POINTER_UNKNOWN;
  table.pointer_attribute(&managed, kPointerIsManaged, pointer);
  return type == table.host_memory_type && managed == 0 ? RLK_POINTER_PINNED : RLK_POINTER_DEVICE;
}

bool Device::can_access_peer(sdk::Device& peer) {
  if (driver().device_can_access_peer == nullptr) return false;
  int can = 0;
  check(driver().device_can_access_peer(&can, device_, static_cast<Device&>(peer).device_), "asking for peer access");
  return can != 0;
}

std::unique_ptr<sdk::Stream> Device::create_stream(int32_t priority) {
  const RelaxedScope scope(place_);
  return std::make_unique<Stream>(*this, host::create_stream(priority), true);
}

void Device::native(rlk_native_device& out) {
  out.ordinal = ordinal_;
  out.device = device_;
  out.context = place_.context;
}

std::unique_ptr<sdk::Stream> Device::wrap_stream(void* native) {
  return std::make_unique<Stream>(*this, static_cast<StreamHandle>(native), false);
}

std::unique_ptr<sdk::Event> Device::create_event(bool timing) {
  return std::make_unique<Event>(*this, timing);
}

std::unique_ptr<sdk::Event> Device::wrap_event(void* native) {
  if (native == nullptr) throw sdk::Error(RLK_INVALID_ARGUMENT, "the event to wrap is NULL; pass the driver's handle");
  return std::make_unique<Event>(*this, static_cast<EventHandle>(native));
}

FunctionHandle Device::kernel(const char* image, const std::string& name, int dynamic_shared) {
  const RelaxedScope scope(place_);
  return kernels_->get(image, name, dynamic_shared);
}

std::shared_ptr<void> Device::kept(const void* key, const std::function<std::shared_ptr<void>()>& make) {
  const std::lock_guard<std::mutex> lock(kept_mutex_);
  std::shared_ptr<void>& mine = kept_[key];
  if (mine == nullptr) {
    const RelaxedScope scope(place_);
    mine = make();
  }
  return mine;
}

}  // namespace rlk::simt::host
