// The built-in plugin "cpu": always there, first-class, linked into librlk.
#include <rlk/sdk/plugin.hpp>

#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/simd/target.hpp"

namespace rlk::cpu {
namespace {

class CpuPlugin : public sdk::Plugin {
public:
  using Device = CpuDevice;
  using Stream = CpuStream;
  using Event = CpuEvent;
  using Implementations = CpuImplementations;

  explicit CpuPlugin(const sdk::Host& host) : host_(host) {
    if (!runs_here())
      throw sdk::Error(RLK_UNSUPPORTED,
                       "librlk was built for the instruction set of another processor alone, which this one does not "
                       "have. Build it here, or with -D RLK_CPU_TARGETS=all");
  }

  sdk::Verdict probe(sdk::Evidence& evidence) override {
    const std::string model = cpu_model();
    evidence.supports("device_name", model);
    evidence.supports("instruction_set", variant_name());
    return sdk::Verdict::mine(model + " " + variant_name());
  }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t ordinal, rlk_device_properties& out) override {
    only(ordinal);
    describe_cpu(host_, out);
  }
  std::unique_ptr<sdk::Device> open_device(uint32_t ordinal) override {
    only(ordinal);
    return std::make_unique<CpuDevice>(host_);
  }

private:
  static void only(uint32_t ordinal) {
    if (ordinal == 0) return;
    throw sdk::Error(RLK_INVALID_ARGUMENT, sdk::format("device %u asked for; the CPU is device 0 alone", ordinal));
  }
  sdk::Host host_;
};

}  // namespace
}  // namespace rlk::cpu

RLK_PLUGIN_ENTRY(rlk_cpu_entry_v1, rlk::cpu::CpuPlugin, "cpu", "cpu", "0.1.0",
                 "Built-in CPU implementation of every operator (Highway kernels on the host's thread pool)")
