// The plugin, on the simple plugin's device.
#include <tuple>

#include "conformance/rounding/arithmetic.hpp"
#include "conformance/rounding/implementations.hpp"

namespace rlk::rounding {
namespace {

bool g_claims_accurate = false;

class RoundingPlugin : public sdk::Plugin {
public:
  using Device = simple::SimpleDevice;
  using Stream = simple::SimpleStream;
  using Event = simple::SimpleEvent;
  using Implementations = std::tuple<Attention, AttentionBackward, LinearLogp, LinearLogpBackward>;
  explicit RoundingPlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine("rounding"); }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override { simple::SimpleDevice::describe(out); }
  std::unique_ptr<sdk::Device> open_device(uint32_t) override { return std::make_unique<simple::SimpleDevice>(); }
};

}  // namespace

void set_claims_accurate(bool claims) {
  g_claims_accurate = claims;
}
bool claims_accurate() {
  return g_claims_accurate;
}
uint32_t claimed() {
  return RLK_NUMERICS_TOLERANCE | (claims_accurate() ? uint32_t{RLK_NUMERICS_ACCURATE} : 0);
}

}  // namespace rlk::rounding

RLK_PLUGIN_ENTRY(rlk_rounding_entry, rlk::rounding::RoundingPlugin, "rounding", "rounding", "1.0.0", "plain kernels")
