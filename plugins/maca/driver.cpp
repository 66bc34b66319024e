// MetaX's part of the table: the libraries and their names, attributes, codes beyond CUDA's numbering, and kernels from
// MACA's compiler at run time.
#include "../simt/host/calls.hpp"
#include "../simt/host/compiler.hpp"
#include "maca.hpp"

namespace rlk::maca {
namespace {

using namespace simt::host;

constexpr Attributes kAttributes = [] {
  Attributes at;
#define RLK_MACA_ATTRIBUTE(member, name, number) at.member = number;
  RLK_MACA_ATTRIBUTES(RLK_MACA_ATTRIBUTE)
#undef RLK_MACA_ATTRIBUTE
  return at;
}();

// One runtime, under two names: a sister line of products has hc where this one has mc (site).
struct Names {
  const char* prefix;
  std::vector<std::string> libraries;
};
const std::vector<Names>& known_names() {
  static const std::vector<Names> all = {{"mc", {"libmcruntime.so"}}, {"hc", {"libhcruntime.so"}}};
  return all;
}

struct Library {
  void* handle = nullptr;
  std::string prefix = "mc";
  // "mcMalloc" in this library's words.
  std::string operator()(const char* name) const { return prefix + (name + 2); }
};

Library open_library(sdk::Symbols& symbols) {
  std::vector<std::string> tried;
  for (const Names& names : known_names()) {
    if (void* found = symbols.find_library(names.libraries, folders())) return {found, names.prefix};
    tried.insert(tried.end(), names.libraries.begin(), names.libraries.end());
  }
  symbols.require_library(tried, folders());
  return {};
}

// The compiler is in the runtime's library (site).
Compiler open_compiler() {
  Compiler table;
  sdk::Symbols& symbols = table.symbols;
  const Library library = open_library(symbols);
#define RLK_MACA_BIND(member, function, parameters) \
  symbols.require(library.handle, library("mcrtc" #function).c_str(), table.member);
  RLK_SIMT_COMPILER_FUNCTIONS(RLK_MACA_BIND)
#undef RLK_MACA_BIND
  symbols.require(library.handle, library("mcrtcGetBitcodeSize").c_str(), table.code_size);
  symbols.require(library.handle, library("mcrtcGetBitcode").c_str(), table.code);
  table.name = "mcRTC";
  table.platform = "platform_maca.cuh";
  table.version = runtime_version();
  int (*version)(int* major, int* minor) = nullptr;
  int major = 0, minor = 0;
  if (symbols.find(library.handle, library("mcrtcVersion").c_str(), version) && version(&major, &minor) == 0) {
    table.version += sdk::format("-%d.%d", major, minor);
  }
  return table;
}

const Compiler& compiler() {
  static const Compiler table = open_compiler();
  return table;
}

// "xcore1000": the native major version is 10 (site). MACA's CUDA bridge calls the same device 8.0.
std::string architecture(int device) {
  const int major = attribute(device, kAttributeMajor), minor = attribute(device, kAttributeMinor);
  return major > 0 ? sdk::format("xcore%d", 100 * major + minor) : "";
}

const void* image_of(const char* kernels, int device) {
  if (!compiler().usable()) return nullptr;
  char name[128] = "";
  driver().device_name(name, sizeof(name), device);
  // The compiler takes the current device's architecture (site: no published call names one).
  const Place place = ThreadPlace::current();
  return compiled_image(compiler(), kernels, std::string(name) + "-" + architecture(device),
                        {"-std=c++17", "-O3", "-ffp-contract=off", "-fno-strict-aliasing"}, &place);
}

Profile profile_of(int device) {
  Profile profile;
  profile.arch = architecture(device);
  profile.driver_version = module_version("metax");  // analogy
  profile.runtime_version = runtime_version();
  profile.matrix_per_us = 1.2e6;  // a guess: nothing is measured, and no data sheet is public
  if (!compiler().usable()) {
    profile.refusal =
        sdk::Support::no("KERNELS_NOT_BUILT",
                         "this plugin's kernels are compiled on the machine, and MACA's compiler "
                         "cannot be used: " +
                             compiler().symbols.problem() + "; install a MACA release whose runtime has mcrtc");
  }
  return profile;
}

// Codes from 1000 are MACA's own (listed).
rlk_status status_of(Result code) {
  switch (code) {
    case 10007:  // NoMemory
      return RLK_OUT_OF_MEMORY;
    case 31:     // NotYetImplemented
    case 10010:  // NotImplemented
      return RLK_UNSUPPORTED;
    case 10001:  // DockerDriverUnload
    case 10002:  // DriverWarmReset
    case 10030:  // DriverFunctionLevelReset
    case 10032:  // KernelExecTimeout
      return RLK_DEVICE_LOST;
    default:
      return status_of_code(code);
  }
}

Driver open_driver() {
  Driver table;
  const Library library = open_library(table.symbols);
#define RLK_MACA_NEED(member, function) table.symbols.require(library.handle, library(#function).c_str(), table.member);
#define RLK_MACA_FIND(member, function) table.symbols.find(library.handle, library(#function).c_str(), table.member);
  RLK_SIMT_RUNTIME_REQUIRED(RLK_MACA_NEED, mc)
  RLK_SIMT_RUNTIME_OPTIONAL(RLK_MACA_FIND, mc)
  RLK_MACA_REQUIRED(RLK_MACA_NEED)
  RLK_MACA_OPTIONAL(RLK_MACA_FIND)
#undef RLK_MACA_NEED
#undef RLK_MACA_FIND
  table.path = sdk::Symbols::path_of(table.init);
  table.name = "MACA";
  table.domain = "maca";
  table.attributes = kAttributes;
  table.pinned_is_mapped = true;                // analogy: as HIP's, one address for host and kernels
  table.plain_shared_bytes = 64 * 1024;         // all that a block may have, without asking (site)
  table.grid_threads = (int64_t{1} << 32) - 1;  // analogy with HIP, the narrower of the two
  table.status_of = &status_of;
  table.profile = &profile_of;
  table.image = &image_of;
  if (!table.symbols.complete()) return table;
  int version = 0;
  const Result code = table.driver_version(&version);
  if (code != kSuccess || version <= 0) {
    table.unfit = "does not say its version (" + table.describe(code) + sdk::format(", version %d)", version) +
                  "; is the kernel driver loaded, and of the same release?";
  }
  return table;
}

}  // namespace

std::vector<std::string> folders() {
  return library_folders({"MACA_PATH", "MACA_HOME", "MACA_ROOT", "METAX_PATH", "METAX_HOME"}, {"/opt/maca"});
}

std::string runtime_version() {
  int version = 0;
  const Driver& table = driver();
  return table.driver_version != nullptr && table.driver_version(&version) == kSuccess ? std::to_string(version) : "";
}

}  // namespace rlk::maca

const rlk::simt::host::Driver& rlk::simt::host::driver() {
  static const Driver table = maca::open_driver();
  return table;
}
