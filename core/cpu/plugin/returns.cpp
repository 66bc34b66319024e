// returns behind the plugin ABI.
#include "core/cpu/kernels/gae.hpp"

#include "core/cpu/plugin/arrays.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::Returns;

class ReturnsPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run&) override { return 0; }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    ReturnsArgs args;
    args.sequences = sequences_of(*run.input(RLK_RETURNS_IN_REWARDS), run.input(RLK_RETURNS_IN_CU_SEQLENS));
    args.rewards = in(RLK_RETURNS_IN_REWARDS);
    args.mask = mask_of(run.input(RLK_RETURNS_IN_MASK));
    args.gamma = params().gamma;
    args.reset = params().mask_rule == RLK_RETURNS_MASK_RULE_RESET;
    args.returns = array_of(run.output(RLK_RETURNS_OUT_RETURNS));
    report(run, cpu::returns(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuReturns::query(CpuDevice&, const sdk::Call<Op>& call) {
  return support(call, 0, bytes_of(call),
                 static_cast<double>(sdk::element_count(*call.input(RLK_RETURNS_IN_REWARDS))) * 1000);
}

std::unique_ptr<sdk::Plan> CpuReturns::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<ReturnsPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
