// The Cambricon plugin: what it concludes from this machine, its devices and its operators. Creating it opens the
// vendor's libraries; CNDRV is initialised by probe and device_count.
#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "composed.hpp"
#include "fused.hpp"
#include "plugins/composed/operators.hpp"

namespace rlk::cambricon {
namespace {

constexpr const char* kInstallHint =
    "install Cambricon Neuware (CNRT, CNDRV, CNNL); NEUWARE_HOME names its folder, or LD_LIBRARY_PATH its lib64";

// "cambricon_ctl cambricon_dev0", or empty.
std::string names_in(const char* folder_name, const char* prefix) {
  std::string names;
  DIR* folder = opendir(folder_name);
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    if (std::strncmp(entry->d_name, prefix, std::strlen(prefix)) == 0)
      names += (names.empty() ? "" : " ") + std::string(entry->d_name);
  }
  closedir(folder);
  return names;
}

// "0000:3b:00.0 0000:5e:00.0" of the vendor's PCI functions, or empty.
std::string pci_devices() {
  std::string names;
  DIR* folder = opendir("/sys/bus/pci/devices");
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    std::ifstream file(std::string("/sys/bus/pci/devices/") + entry->d_name + "/vendor");
    std::string vendor;
    if (file >> vendor && vendor == "0xcabc") names += (names.empty() ? "" : " ") + std::string(entry->d_name);
  }
  closedir(folder);
  return names;
}

class CambriconPlugin final : public sdk::Plugin {
public:
  using Device = cambricon::Device;
  using Stream = cambricon::Stream;
  using Event = cambricon::Event;
  using Implementations = composed::Implementations<Cnnl, LayerNormFused, RmsNormFused>;

  explicit CambriconPlugin(const sdk::Host&) { runtime(); }

  sdk::Verdict probe(sdk::Evidence& evidence) override {
    const std::string nodes = names_in("/dev", "cambricon");
    nodes.empty() ? evidence.contradicts("device_node", "no /dev/cambricon_dev*")
                  : evidence.supports("device_node", nodes);
    const std::string cards = pci_devices();
    if (!cards.empty())
      evidence.supports("pci_device", cards);
    else if (access("/sys/bus/pci/devices", R_OK) == 0)
      evidence.contradicts("pci_device", "none of vendor cabc");
    else
      evidence.neutral("pci_device", "no PCI bus to be seen");
    for (const char* name : {"NEUWARE_HOME", "MLU_VISIBLE_DEVICES"}) {
      if (const char* value = std::getenv(name)) evidence.neutral("environment", std::string(name) + "=" + value);
    }

    const Runtime& r = runtime();
    for (const std::string& path : r.library_paths) evidence.supports("runtime_library", path);
    if (!r.cnrt_version.empty())
      evidence.neutral("runtime_version", "CNRT " + r.cnrt_version + ", CNNL " + r.cnnl_version);
    if (r.loaded() && !r.no_captures.empty()) evidence.neutral("graphs", r.no_captures);
    if (!r.loaded()) {
      evidence.contradicts(r.library_paths.empty() ? "runtime_library" : "runtime_symbols", r.reason);
      return sdk::Verdict::absent(
          r.reason_code, r.reason,
          r.library_paths.empty() ? kInstallHint : "CNRT 5 or newer is needed, with its CNDRV and CNNL");
    }
    if (const int code = initialize(); code != 0) {
      return sdk::Verdict::absent("RUNTIME_INIT_FAILED", sdk::format("cnInit failed with %d", code),
                                  "check cnmon; the driver may not match this Neuware");
    }
    unsigned number = 0;
    const int code = r.cnrtGetDeviceCount(&number);
    if (code != 0 || number == 0) {
      evidence.contradicts("device_count", sdk::format("%u (cnrtGetDeviceCount returned %d)", number, code));
      return sdk::Verdict::absent("NO_DEVICE", sdk::format("CNRT is here but sees no device (code %d)", code),
                                  "check cnmon, the container's /dev/cambricon_* and MLU_VISIBLE_DEVICES");
    }
    evidence.supports("device_count", std::to_string(number));
    const std::string name = name_of(0);
    if (!name.empty() && name.rfind("MLU", 0) != 0) {
      evidence.contradicts("device_name", name);
      return sdk::Verdict::not_mine("UNKNOWN_DEVICE", "the runtime's device is \"" + name + "\", not an MLU", "");
    }
    evidence.supports("device_name", name.empty() ? "not told by this CNDRV" : name);
    return sdk::Verdict::mine("cnrt " + r.cnrt_version + " cnnl " + r.cnnl_version + " " + name);
  }

  const void* extension(const char* id) override {
    const bool captures = runtime().loaded() && runtime().no_captures.empty();
    return captures && std::strcmp(id, RLK_EXT_GRAPH) == 0 ? &sdk::graph_api<Stream> : nullptr;
  }

  uint32_t device_count() override {
    unsigned number = 0;
    if (!runtime().loaded() || initialize() != 0) return 0;
    return runtime().cnrtGetDeviceCount(&number) == 0 ? number : 0;
  }

  void describe_device(uint32_t ordinal, rlk_device_properties& out) override {
    require(ordinal);
    describe(static_cast<int>(ordinal), out);
  }
  std::unique_ptr<sdk::Device> open_device(uint32_t ordinal) override {
    require(ordinal);
    return std::make_unique<Device>(static_cast<int>(ordinal));
  }

private:
  void require(uint32_t ordinal) {
    const uint32_t number = device_count();
    if (ordinal < number) return;
    throw sdk::Error(number == 0 ? RLK_ABSENT : RLK_INVALID_ARGUMENT,
                     sdk::format("device %u was asked for; the runtime shows %u", ordinal, number));
  }
};

}  // namespace
}  // namespace rlk::cambricon

// The variables decide which Neuware is found, what it shows, and how large a chunk is.
RLK_PLUGIN_WITH_ENVIRONMENT(rlk::cambricon::CambriconPlugin, "cambricon", "cambricon", "0.1.0",
                            "Cambricon MLU through CNRT and CNNL",
                            "NEUWARE_HOME,LD_LIBRARY_PATH,MLU_VISIBLE_DEVICES,RLK_CAMBRICON_WORKSPACE_MB")
