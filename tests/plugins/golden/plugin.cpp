// A complete plugin that a user drops into a folder: host memory as its device, serial code as its operators. Tests and
// the quickstart build it, inside the tree and outside against the installed package.
#include "operators.hpp"

namespace {

class GoldenPlugin : public rlk::sdk::Plugin {
public:
  using Device = golden_plugin::Device;
  using Stream = golden_plugin::Stream;
  using Event = golden_plugin::Event;
  using Implementations =
      std::tuple<golden_plugin::Serial<rlk::sdk::ops::Logp>, golden_plugin::Serial<rlk::sdk::ops::LogpBackward>,
                 golden_plugin::Serial<rlk::sdk::ops::Attention>, golden_plugin::Serial<rlk::sdk::ops::Add>>;

  explicit GoldenPlugin(const rlk::sdk::Host&) {}
  rlk::sdk::Verdict probe(rlk::sdk::Evidence& evidence) override {
    evidence.supports("device_name", "host memory");
    return rlk::sdk::Verdict::mine("golden 1");
  }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override { Device::describe(out); }
  std::unique_ptr<rlk::sdk::Device> open_device(uint32_t) override { return std::make_unique<Device>(); }
};

}  // namespace

RLK_PLUGIN(GoldenPlugin, "golden", "golden", "1.0.0", "Serial operators on host memory")
