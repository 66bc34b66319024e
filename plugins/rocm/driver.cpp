// AMD's part of the table: the library and its versions, attributes, what an architecture is worth, where kernels come
// from: inside this plugin where hipcc was there when it was built, else from hipRTC on this machine.
#include "../simt/host/calls.hpp"
#include "../simt/host/compiler.hpp"
#include "hip.hpp"

namespace rlk::rocm {
namespace {

using namespace simt::host;

constexpr Attributes kAttributes = [] {
  Attributes at;
#define RLK_ROCM_ATTRIBUTE(member, name, number) at.member = number;
  RLK_ROCM_ATTRIBUTES(RLK_ROCM_ATTRIBUTE)
#undef RLK_ROCM_ATTRIBUTE
  return at;
}();

// Up to 5 hipRTC is inside the runtime.
Compiler open_compiler() {
  Compiler table;
  sdk::Symbols& symbols = table.symbols;
  void* library = symbols.find_library({"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"}, folders());
  if (library == nullptr) library = symbols.require_library({"libamdhip64.so.5"}, folders());
#define RLK_ROCM_BIND(member, function, parameters) symbols.require(library, "hiprtc" #function, table.member);
  RLK_SIMT_COMPILER_FUNCTIONS(RLK_ROCM_BIND)
#undef RLK_ROCM_BIND
  symbols.require(library, "hiprtcGetCodeSize", table.code_size);
  symbols.require(library, "hiprtcGetCode", table.code);
  table.name = "hipRTC";
  table.platform = "platform_hip.cuh";
  table.own = kOwnTexts;
  table.version = runtime_version();
  return table;
}

const Compiler& compiler() {
  static const Compiler table = open_compiler();
  return table;
}

std::string architecture_of_device(int device) {
  char pci[64] = "";
  if (driver().device_pci_id == nullptr || driver().device_pci_id(pci, sizeof(pci), device) != kSuccess) pci[0] = '\0';
  return architecture(pci);
}

// Of a device whose architecture nothing tells, what tells it apart for the cache: hipRTC then takes the current one.
std::string cache_name(int device) {
  char name[128] = "";
  driver().device_name(name, sizeof(name), device);
  return sdk::format("%s-%d.%d", name, attribute(device, kAttributeMajor), attribute(device, kAttributeMinor));
}

const void* image_of(const char* kernels, int device) {
  const std::string target = architecture_of_device(device);
  if (const void* built = built_image(kernels, target)) return built;
  if (!compiler().usable()) return nullptr;
  std::vector<std::string> options = {"-O3", "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing"};
  if (!target.empty()) options.push_back("--offload-arch=" + target);
  const Place place = ThreadPlace::current();
  return compiled_image(compiler(), kernels, target.empty() ? cache_name(device) : target, options, &place);
}

Profile profile_of(int device) {
  Profile profile;
  profile.arch = architecture_of_device(device);
  profile.driver_version = module_version("amdgpu");
  profile.runtime_version = runtime_version();
  // Estimates from data sheets, nothing measured: 16-bit matrix operations of a compute unit in a microsecond.
  const int major = attribute(device, kAttributeMajor);
  profile.matrix_per_us = major == 9 ? 1.7e6 : 0.8e6;
  if (built_image("add", profile.arch) == nullptr && !compiler().usable()) {
    const std::string built = built_architectures();
    profile.refusal = sdk::Support::no(
        "KERNELS_NOT_BUILT", "this plugin holds kernels for " + (built.empty() ? "no device" : built) +
                                 ", the device is " + (profile.arch.empty() ? "not named" : profile.arch) +
                                 ", and hipRTC cannot be used: " + compiler().symbols.problem() +
                                 "; install hipRTC, or rebuild the plugin with a hipcc that knows the device");
  }
  return profile;
}

Driver open_driver() {
  Driver table;
  void* library = table.symbols.require_library(
      {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}, folders());
  RLK_SIMT_RUNTIME_REQUIRED(RLK_SIMT_BIND_REQUIRED, hip)
  RLK_SIMT_RUNTIME_OPTIONAL(RLK_SIMT_BIND_OPTIONAL, hip)
  RLK_ROCM_REQUIRED(RLK_SIMT_BIND_REQUIRED)
  RLK_ROCM_OPTIONAL(RLK_SIMT_BIND_OPTIONAL)
  table.path = sdk::Symbols::path_of(table.init);
  table.name = "HIP";
  table.domain = "hip";
  table.attributes = kAttributes;
  table.dlpack_device_type = 10;         // kDLROCM
  table.pinned_is_mapped = true;         // hipHostMalloc's memory has one address, without being asked
  table.plain_shared_bytes = 64 * 1024;  // all that a block may have
  table.grid_threads = (int64_t{1} << 32) - 1;
  table.profile = &profile_of;
  table.image = &image_of;
  if (!table.symbols.complete()) return table;
  int version = 0;
  if (table.driver_version(&version) != kSuccess || version < kOldestVersion) {
    table.unfit = "is HIP " + version_text(version) + "; 5.0 is the oldest whose numbers of attributes are known";
  }
  table.host_memory_type = version < kMemoryTypesChanged ? 0 : 1;
  return table;
}

}  // namespace

std::string version_text(int version) {
  return sdk::format("%d.%d.%d", version / 10000000, version / 100000 % 100, version % 100000);
}

std::vector<std::string> folders() {
  return simt::host::library_folders({"ROCM_PATH", "HIP_PATH"}, {"/opt/rocm"});
}

std::string runtime_version() {
  int version = 0;
  const Driver& table = driver();
  return table.driver_version != nullptr && table.driver_version(&version) == kSuccess ? version_text(version) : "";
}

}  // namespace rlk::rocm

const rlk::simt::host::Driver& rlk::simt::host::driver() {
  static const Driver table = rocm::open_driver();
  return table;
}
