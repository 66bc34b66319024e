// The plugin for AMD devices: how they are recognised, what it brings.
#include "../simt/host/plugin.hpp"
#include "../simt/host/compiler.hpp"
#include "attention_mfma.hpp"
#include "hip.hpp"
#include "hipblaslt.hpp"

namespace rlk::rocm {

class Plugin final : public simt::host::Plugin {
public:
  // In the order in which they are tried where no call has asked for one.
  using Implementations = decltype(std::tuple_cat(
      std::declval<simt::host::PackStrided<std::tuple<AttentionMfma>>>(), std::declval<simt::host::SharedOperators>(),
      std::declval<simt::host::PackStrided<products::Implementations<HipblasLt>>>()));
  explicit Plugin(const sdk::Host& host) : cache_(host) {}

  sdk::Verdict probe(sdk::Evidence& evidence) override {
    static const simt::host::Identity kAmd = {
        "AMD",
        "HIP",
        {"/dev/kfd", "/dev/dri"},
        {"0x1002"},
        {64, 32},
        "install the ROCm runtime (libamdhip64.so), or give the container access to it; ROCM_PATH names its folder",
        "check rocminfo, that this user may open /dev/kfd and /dev/dri, and HIP_VISIBLE_DEVICES",
        &runtime_version,
    };
    return simt::host::probe_runtime(kAmd, evidence);
  }

private:
  const simt::host::HostScope cache_;
};

}  // namespace rlk::rocm

// The variables decide which runtime is found and what its devices are.
RLK_PLUGIN_WITH_ENVIRONMENT(rlk::rocm::Plugin, "rocm", "rocm", "0.1.0", "operators for AMD devices through HIP",
                            "ROCM_PATH,HIP_PATH,LD_LIBRARY_PATH,HSA_OVERRIDE_GFX_VERSION")
