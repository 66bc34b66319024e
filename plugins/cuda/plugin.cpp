// The plugin for NVIDIA devices: what it is called, what it brings.
#include "operators.hpp"
#include "probe.hpp"

#include <cstring>

namespace rlk::cuda {

class CudaPlugin final : public sdk::Plugin {
public:
  using Device = CudaDevice;
  using Stream = CudaStream;
  using Event = CudaEvent;
  using Implementations = std::tuple<Logp, LogpBackward, AttentionMma, AttentionSimt, Add>;

  explicit CudaPlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence& evidence) override { return cuda::probe(evidence); }
  uint32_t device_count() override { return static_cast<uint32_t>(cuda::device_count()); }

  void describe_device(uint32_t ordinal, rlk_device_properties& out) override {
    require(ordinal);
    describe(static_cast<int>(ordinal), out);
  }
  std::unique_ptr<sdk::Device> open_device(uint32_t ordinal) override {
    require(ordinal);
    return std::make_unique<CudaDevice>(static_cast<int>(ordinal));
  }

  const void* extension(const char* id) override {
    const bool has_graphs = driver().usable() && driver().has_graphs();
    return has_graphs && std::strcmp(id, RLK_EXT_GRAPH) == 0 ? &sdk::graph_api<CudaStream> : nullptr;
  }

private:
  void require(uint32_t ordinal) {
    if (!driver().usable()) throw sdk::Error(RLK_ABSENT, "no CUDA device: " + driver().problem());
    const uint32_t count = device_count();
    if (ordinal >= count) {
      throw sdk::Error(count == 0 ? RLK_ABSENT : RLK_INVALID_ARGUMENT,
                       sdk::format("device %u was asked for; the driver shows %u", ordinal, count));
    }
  }
};

}  // namespace rlk::cuda

RLK_PLUGIN(rlk::cuda::CudaPlugin, "cuda", "cuda", "0.1.0", "operators for NVIDIA devices of sm_80 and later")
