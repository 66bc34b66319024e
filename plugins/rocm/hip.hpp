// What the plugin takes from HIP's headers: names of functions, numbers of attributes and of options. A test compares
// all of it with the headers of HIP 5.2 and 7.1 (tests/headers).
#pragma once

#include "../simt/host/compiler.hpp"
#include "../simt/host/runtime_api.hpp"

// X(member of Driver, function): what HIP calls otherwise than MACA, or has beside it.
#define RLK_ROCM_REQUIRED(X)      \
  X(host_allocate, hipHostMalloc) \
  X(host_free, hipHostFree)
#define RLK_ROCM_OPTIONAL(X)                     \
  X(device_uuid, hipDeviceGetUuid)               \
  X(pointer_attribute, hipPointerGetAttribute)   \
  X(capture_info_v2, hipStreamGetCaptureInfo_v2) \
  X(user_object_create, hipUserObjectCreate)     \
  X(user_object_release, hipUserObjectRelease)   \
  X(graph_retain, hipGraphRetainUserObject)

// X(member of Attributes, hipDeviceAttribute..., number)
#define RLK_ROCM_ATTRIBUTES(X)                                   \
  X(l2_bytes, hipDeviceAttributeL2CacheSize, 19)                 \
  X(bus_width, hipDeviceAttributeMemoryBusWidth, 59)             \
  X(memory_clock, hipDeviceAttributeMemoryClockRate, 60)         \
  X(multiprocessors, hipDeviceAttributeMultiprocessorCount, 63)  \
  X(pci_bus, hipDeviceAttributePciBusId, 67)                     \
  X(pci_device, hipDeviceAttributePciDeviceId, 68)               \
  X(shared_bytes, hipDeviceAttributeMaxSharedMemoryPerBlock, 74) \
  X(warp_size, hipDeviceAttributeWarpSize, 87)                   \
  X(memory_pools, hipDeviceAttributeMemoryPoolsSupported, 88)

namespace rlk::rocm {

constexpr int kAttributeMajor = 23, kAttributeMinor = 61;

// major * 10000000 + minor * 100000 + patch. Before 5 the attributes had other numbers; since 6 the kinds of memory
// have CUDA's, before host memory was 0.
constexpr int kOldestVersion = 50000000;
constexpr int kMemoryTypesChanged = 60000000;

// "5.2.21153"
std::string version_text(int version);
std::string runtime_version();
// Where ROCm puts its libraries, for processes whose loader does not know.
std::vector<std::string> folders();

// The compiler's name of a device's architecture, "gfx90a": what HSA_OVERRIDE_GFX_VERSION makes it, else what the
// kernel's driver says of the card at that PCI address ("0000:c1:00.0"). Empty when neither tells.
std::string architecture(const std::string& pci, const std::string& topology = "/sys/class/kfd/kfd/topology/nodes");
// Of "9.0.10" and of 90010: "gfx90a". Empty for anything else.
std::string architecture_of_override(const std::string& version);
std::string architecture_of_number(long number);

// The code objects inside this plugin: of one file of kernels for one architecture; nullptr when there is none.
const void* built_image(const std::string& kernels, const std::string& architecture);
// "gfx90a gfx1030", empty when the plugin was built without hipcc.
const char* built_architectures() noexcept;

// A file of kernels/ as it was when the plugin was built; nullptr when there is none.
const char* own_text(const std::string& file);
constexpr simt::host::OwnTexts kOwnTexts{"../rocm/kernels/", &own_text};

}  // namespace rlk::rocm
