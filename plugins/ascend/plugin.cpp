// The Ascend plugin: what it concludes from this machine, its devices and its operators. Creating it opens the vendor's
// libraries; AscendCL itself is initialised by probe and device_count, and never finalised, because other code in the
// process may use it.
#include <dirent.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "attention.hpp"
#include "composed.hpp"
#include "device.hpp"
#include "fused.hpp"
#include "paged_attention.hpp"
#include "plugins/composed/operators.hpp"

namespace rlk::ascend {
namespace {

constexpr const char* kInstallHint =
    "install the CANN toolkit and operator packages, then source its set_env.sh (ASCEND_HOME_PATH, LD_LIBRARY_PATH)";

// "davinci0 davinci1 davinci_manager", or empty.
std::string device_nodes() {
  std::string names;
  DIR* folder = opendir("/dev");
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    if (std::strncmp(entry->d_name, "davinci", 7) == 0)
      names += (names.empty() ? "" : " ") + std::string(entry->d_name);
  }
  closedir(folder);
  return names;
}

// "25.0.rc1" of "Version=25.0.rc1" in the driver's information file, or empty.
std::string driver_version() {
  std::ifstream file("/usr/local/Ascend/driver/version.info");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Version=", 0) == 0) return line.substr(8);
  }
  return {};
}

std::string runtime_version() {
  int32_t major = 0, minor = 0, patch = 0;
  const auto ask = runtime().aclrtGetVersion;
  return ask != nullptr && ask(&major, &minor, &patch) == 0 ? sdk::format("%d.%d.%d", major, minor, patch) : "";
}

class AscendPlugin final : public sdk::Plugin {
public:
  using Device = ascend::Device;
  using Stream = ascend::Stream;
  using Event = ascend::Event;
  using Implementations = composed::Implementations<Aclnn, Attention, SiluAndMulFused, RmsNormFused, AddRmsNormFused,
                                                    SoftmaxFused, SoftmaxBackwardFused, LogSoftmaxFused,
                                                    LogSoftmaxBackwardFused, ApplyRotaryPosEmbFused, PagedAttention>;

  explicit AscendPlugin(const sdk::Host&) { runtime(); }

  sdk::Verdict probe(sdk::Evidence& evidence) override {
    const std::string nodes = device_nodes();
    if (nodes.empty())
      evidence.neutral("device_node", "no /dev/davinci*");
    else
      evidence.supports("device_node", nodes);
    for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_RT_VISIBLE_DEVICES"}) {
      if (const char* value = std::getenv(name)) evidence.neutral("environment", std::string(name) + "=" + value);
    }

    const Runtime& r = runtime();
    for (const std::string& path : r.library_paths) evidence.supports("runtime_library", path);
    if (!r.symbols.missing_libraries().empty()) {
      evidence.contradicts("runtime_library", r.symbols.missing_libraries());
      return sdk::Verdict::absent("RUNTIME_LIBRARY_MISSING", "cannot open " + r.symbols.missing_libraries(),
                                  kInstallHint);
    }
    if (!r.symbols.missing_functions().empty()) {
      evidence.contradicts("runtime_symbols", r.symbols.missing_functions());
      return sdk::Verdict::absent("RUNTIME_SYMBOL_MISSING",
                                  "this CANN is not supported; it lacks " + r.symbols.missing_functions(),
                                  "CANN 8.1 or newer is needed");
    }
    const std::string version = runtime_version();
    if (!version.empty()) evidence.neutral("runtime_version", version);

    if (const int code = initialize(); code != 0) {
      return sdk::Verdict::absent("RUNTIME_INIT_FAILED", sdk::format("aclInit failed with %d", code),
                                  "see the log in ~/ascend/log; the driver may not match this CANN");
    }
    uint32_t count = 0;
    const int code = r.aclrtGetDeviceCount(&count);
    if (code != 0 || count == 0) {
      evidence.contradicts("device_count", sdk::format("%u (aclrtGetDeviceCount returned %d)", count, code));
      return sdk::Verdict::absent("NO_DEVICE", sdk::format("CANN is here but sees no device (code %d)", code),
                                  "check npu-smi info, the container's /dev/davinci* and ASCEND_RT_VISIBLE_DEVICES");
    }
    evidence.supports("device_count", std::to_string(count));
    const std::string name = soc_name();
    if (name.rfind("Ascend", 0) != 0) {
      evidence.contradicts("device_name", name);
      return sdk::Verdict::not_mine("UNKNOWN_DEVICE", "the runtime's device is \"" + name + "\", not an Ascend", "");
    }
    evidence.supports("device_name", name);
    return sdk::Verdict::mine("acl " + version + " driver " + driver_version() + " " + name);
  }

  const void* extension(const char* id) override {
    const bool captures = runtime().loaded() && captures_graphs(soc_name());
    return captures && std::strcmp(id, RLK_EXT_GRAPH) == 0 ? &sdk::graph_api<Stream> : nullptr;
  }

  uint32_t device_count() override {
    uint32_t count = 0;
    if (!runtime().loaded() || initialize() != 0) return 0;
    return runtime().aclrtGetDeviceCount(&count) == 0 ? count : 0;
  }

  void describe_device(uint32_t ordinal, rlk_device_properties& out) override {
    require(ordinal);
    describe(static_cast<int32_t>(ordinal), out);
    sdk::detail::copy_text(out.driver_version, driver_version().c_str());
  }
  std::unique_ptr<sdk::Device> open_device(uint32_t ordinal) override {
    require(ordinal);
    return std::make_unique<Device>(static_cast<int32_t>(ordinal));
  }

private:
  void require(uint32_t ordinal) {
    const uint32_t count = device_count();
    if (ordinal < count) return;
    throw sdk::Error(count == 0 ? RLK_ABSENT : RLK_INVALID_ARGUMENT,
                     sdk::format("device %u was asked for; the runtime shows %u", ordinal, count));
  }
  // aclInit works once per process; another library's call of it is as good.
  static int initialize() {
    static const int code = runtime().aclInit(nullptr);
    return code == kAclRepeatInitialize ? 0 : code;
  }
};

}  // namespace
}  // namespace rlk::ascend

// The variables decide which CANN is found, what it shows, and how large a chunk is.
RLK_PLUGIN_WITH_ENVIRONMENT(
    rlk::ascend::AscendPlugin, "ascend", "ascend", "0.1.0", "Huawei Ascend through AscendCL and aclnn",
    "ASCEND_HOME_PATH,ASCEND_TOOLKIT_HOME,LD_LIBRARY_PATH,ASCEND_RT_VISIBLE_DEVICES,RLK_ASCEND_WORKSPACE_MB")
