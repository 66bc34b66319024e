// The plugin for MetaX devices: how they are recognised, what it brings.
#include "../simt/host/plugin.hpp"
#include "../simt/host/compiler.hpp"
#include "maca.hpp"
#include "mcblaslt.hpp"

namespace rlk::maca {

class Plugin final : public simt::host::Plugin {
public:
  // In the order in which they are tried where no call has asked for one.
  using Implementations =
      decltype(std::tuple_cat(std::declval<simt::host::SharedOperators>(),
                              std::declval<simt::host::PackStrided<products::Implementations<McblasLt>>>()));
  explicit Plugin(const sdk::Host& host) : cache_(host) {}

  sdk::Verdict probe(sdk::Evidence& evidence) override {
    // The nodes, the number of the PCI vendor and the width of 64 are from published code.
    static const simt::host::Identity kMetax = {
        "MetaX",
        "MACA",
        {"/dev/mxcd", "/dev/mxgvm"},
        {"0x9999"},
        {64},
        "install the MACA runtime (libmcruntime.so), or give the container access to it; MACA_PATH names its folder",
        "check mx-smi, that this user may open /dev/mxcd and /dev/dri, and MACA_VISIBLE_DEVICES",
        &runtime_version,
    };
    return simt::host::probe_runtime(kMetax, evidence);
  }

private:
  const simt::host::HostScope cache_;
};

}  // namespace rlk::maca

// The variables decide which runtime is found and what its devices are.
RLK_PLUGIN_WITH_ENVIRONMENT(rlk::maca::Plugin, "maca", "maca", "0.1.0", "operators for MetaX devices through MACA",
                            "MACA_PATH,MACA_HOME,MACA_ROOT,METAX_PATH,METAX_HOME,MACA_VISIBLE_DEVICES,"
                            "CUDA_VISIBLE_DEVICES,LD_LIBRARY_PATH")
