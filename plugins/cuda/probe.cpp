// Evidence from the driver library, the kernel module and the devices, then the verdict.
#include "probe.hpp"

#include "../simt/host/plugin.hpp"

#include <cctype>
#include <fstream>

namespace rlk::cuda {
namespace {

using namespace simt::host;

constexpr int kNvidiaWidth = 32;

// Runtimes that look like CUDA and are another vendor's keep their libraries in folders of these names.
bool in_foreign_tree(const std::string& path) {
  std::string lower;
  for (const char c : path) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* name : {"/maca", "cu-bridge", "/metax"}) {
    if (lower.find(name) != std::string::npos) return true;
  }
  return false;
}

sdk::Verdict no_driver(const Driver& table) {
  if (!table.symbols.missing_functions().empty()) {
    return sdk::Verdict::absent("DRIVER_TOO_OLD", table.problem(),
                                "install a newer NVIDIA driver: every export named here must be present");
  }
  return sdk::Verdict::absent("RUNTIME_LIBRARY_MISSING", table.problem(),
                              "install the NVIDIA driver, or give the container access to it (libcuda.so.1)");
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
  report_nodes(evidence, {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"});  // the last is Windows' subsystem
  const Driver& table = driver();
  if (!table.usable()) {
    evidence.contradicts("runtime_library", table.problem());
    return no_driver(table);
  }
  if (in_foreign_tree(table.path)) {
    evidence.contradicts("runtime_library", table.path);
    return sdk::Verdict::not_mine("FOREIGN_RUNTIME",
                                  "libcuda.so.1 is " + table.path + ", another vendor's CUDA look-alike",
                                  "use the plugin of that vendor");
  }
  evidence.supports("runtime_library", table.path);
  const std::string module = kernel_driver_version();
  if (!module.empty()) evidence.supports("driver_version", module);

  int count = 0;
  Result code = table.init(0);
  if (code == kSuccess) code = table.device_count(&count);
  if (code != kSuccess) {
    evidence.contradicts("driver", table.describe(code));
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
    evidence.neutral("device_name", name);
    if (width != kNvidiaWidth) {
      evidence.contradicts("simt_width", std::to_string(width));
      return sdk::Verdict::not_mine(
          "SIMT_WIDTH", sdk::format("device %d (%s) executes %d threads together; NVIDIA's execute 32", i, name, width),
          "use the plugin of that device's vendor");
    }
    evidence.supports("simt_width", std::to_string(width));
  }
  return sdk::Verdict::mine(module + ";" + cuda_version() + ";" + std::to_string(count));
}

}  // namespace rlk::cuda
