// A plugin of a second SIMT vendor, as small as one can be: a table, a probe and the shared operators.
#include "plugins/simt/host/plugin.hpp"

namespace rlk::wide {

using namespace simt::host;

class Plugin final : public simt::host::Plugin {
public:
  using Implementations = SharedOperators;
  explicit Plugin(const sdk::Host&) {}

  sdk::Verdict probe(sdk::Evidence& evidence) override {
    const Driver& table = driver();
    if (!table.usable()) {
      evidence.contradicts("runtime_library", table.problem());
      return sdk::Verdict::absent("RUNTIME_LIBRARY_MISSING", table.problem(), "put libwide.so.1 on the library path");
    }
    evidence.supports("runtime_library", table.path);
    const int count = simt::host::device_count();
    if (count == 0)
      return sdk::Verdict::absent("NO_DEVICE", "the runtime shows no device", "set RLK_FAKE_WIDE_DEVICES");
    return sdk::Verdict::mine(std::to_string(count));
  }
};

}  // namespace rlk::wide

RLK_PLUGIN(rlk::wide::Plugin, "wide", "wide", "0.1.0", "the shared SIMT operators on a simulated runtime")
