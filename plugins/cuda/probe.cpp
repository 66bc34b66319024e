// Evidence from the driver library, the kernel module and the devices, then the verdict.
#include "probe.hpp"

#include "../simt/host/foreign.hpp"
#include "../simt/host/plugin.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

namespace rlk::cuda {
namespace {

using namespace simt::host;

constexpr int kNvidiaWidth = 32;

// Where a driver of NVIDIA's is, one of these is there: its module, its nodes (Windows' subsystem and boards have
// others), its cards.
constexpr const char* kModule = "/proc/driver/nvidia/version";
const std::vector<const char*>& nodes() {
  static const std::vector<const char*> all = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-gpu",
                                               "/dev/nvmap"};
  return all;
}

// A driver that reaches cards over a network has none of them here; its user says so.
constexpr const char* kRemote = "RLK_CUDA_REMOTE";

// "" when something on this machine is NVIDIA's, else what was looked for.
std::string without_nvidia(sdk::Evidence& evidence) {
  const std::vector<std::string> on_the_bus = cards({"0x10de"});
  for (const std::string& card : on_the_bus) evidence.supports("pci_device", card);
  const auto is_there = [](const char* path) { return access(path, F_OK) == 0; };
  if (!on_the_bus.empty() || is_there(kModule) || std::any_of(nodes().begin(), nodes().end(), is_there)) return {};
  evidence.contradicts("pci_device", "no card of vendor 0x10de");
  const char* remote = std::getenv(kRemote);
  if (remote != nullptr && std::string(remote) == "1") {
    evidence.neutral("environment", std::string(kRemote) + "=1: the driver's devices are elsewhere");
    return {};
  }
  return std::string("no card of vendor 0x10de, no ") + kModule + ", no " + nodes().front();
}

constexpr Result kStubLibrary = 34;  // CUDA_ERROR_STUB_LIBRARY

sdk::Verdict foreign(const Lookalike* found, const std::string& reason) {
  return sdk::Verdict::not_mine("FOREIGN_RUNTIME", reason, advice(found));
}

sdk::Verdict no_driver(const Driver& table) {
  if (!table.symbols.missing_functions().empty()) {
    return sdk::Verdict::absent("DRIVER_TOO_OLD", table.problem(),
                                "install a newer NVIDIA driver: every export named here must be present");
  }
  return sdk::Verdict::absent("RUNTIME_LIBRARY_MISSING", table.problem(),
                              "install the NVIDIA driver, or give the container access to it (libcuda.so.1)");
}

// The toolkit brings one to link against where no driver is installed. Every call of it fails, also where a driver is.
sdk::Verdict stub(const Driver& table) {
  return sdk::Verdict::broken(
      "STUB_LIBRARY",
      "libcuda.so.1 is " + table.path +
          ", the CUDA toolkit's stub, which programs link against and which reaches no card (" +
          table.describe(kStubLibrary) + ")",
      "take the toolkit's stubs folder out of LD_LIBRARY_PATH, so that the driver's own libcuda.so.1 is found");
}

}  // namespace

std::string kernel_driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    if (!std::isdigit(static_cast<unsigned char>(word[0]))) continue;
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) return word;
  }
  return {};
}

std::string cuda_version() {
  int version = 0;
  if (driver().driver_version(&version) != kSuccess) return {};
  return sdk::format("%d.%d", version / 1000, version % 1000 / 10);
}

sdk::Verdict probe(sdk::Evidence& evidence) {
  report_nodes(evidence, nodes());
  const std::string missing = without_nvidia(evidence);
  const Driver& table = driver();
  if (!table.usable()) {
    evidence.contradicts("runtime_library", table.problem());
    return no_driver(table);
  }
  if (const Lookalike* found = lookalike_of_library(table.path, "CUDA")) {
    evidence.contradicts("runtime_library", table.path);
    return foreign(found, "libcuda.so.1 is " + table.path + ", " + found->vendor + "'s look-alike");
  }
  evidence.supports("runtime_library", table.path);
  const std::string module = kernel_driver_version();
  if (!module.empty()) evidence.supports("driver_version", module);

  int count = 0;
  Result code = table.init(0);
  if (code == kSuccess) code = table.device_count(&count);
  if (code != kSuccess) {
    evidence.contradicts("driver", table.describe(code));
    if (code == kStubLibrary) return stub(table);
    return sdk::Verdict::absent("NO_DEVICE", "the driver at " + table.path + " says " + table.describe(code),
                                "check nvidia-smi, the device nodes and CUDA_VISIBLE_DEVICES");
  }
  evidence.supports("runtime_version", cuda_version());
  if (count == 0) {
    return sdk::Verdict::absent("NO_DEVICE", "the driver shows no device", "check CUDA_VISIBLE_DEVICES and nvidia-smi");
  }
  for (int i = 0; i < count; ++i) {
    int device = 0, width = 0;
    char name[128] = "";
    check(table.device_get(&device, i), "opening a device");
    check(table.device_name(name, sizeof(name), device), "asking for a device's name");
    check(table.device_attribute(&width, table.attributes.warp_size, device), "asking for a device's SIMT width");
    if (const Lookalike* found = lookalike_of_device(name, "CUDA")) {
      evidence.contradicts("device_name", name);
      return foreign(found, sdk::format("device %d of %s is a %s, %s's", i, table.path.c_str(), name, found->vendor));
    }
    evidence.neutral("device_name", name);
    if (width != kNvidiaWidth) {
      evidence.contradicts("simt_width", std::to_string(width));
      return sdk::Verdict::not_mine(
          "SIMT_WIDTH", sdk::format("device %d (%s) executes %d threads together; NVIDIA's execute 32", i, name, width),
          "use the plugin of that device's vendor");
    }
    evidence.supports("simt_width", std::to_string(width));
  }
  // Only now: what shows devices and has nothing of NVIDIA's beside it is a look-alike.
  if (!missing.empty()) {
    return foreign(nullptr, "the driver at " + table.path +
                                sdk::format(" shows %d devices, and nothing here is NVIDIA's: ", count) + missing);
  }
  return sdk::Verdict::mine(module + ";" + cuda_version() + ";" + std::to_string(count));
}

}  // namespace rlk::cuda
