// gae behind the plugin ABI.
#include "core/cpu/advantages/gae.hpp"

#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/scan_arguments.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::Gae;

class GaePlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return scan_workspace_bytes(*run.input(RLK_GAE_IN_REWARDS), run.input(RLK_GAE_IN_CU_SEQLENS));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    GaeArgs args;
    args.sequences = sequences_of(*run.input(RLK_GAE_IN_REWARDS), run.input(RLK_GAE_IN_CU_SEQLENS));
    args.rewards = in(RLK_GAE_IN_REWARDS);
    args.values = in(RLK_GAE_IN_VALUES);
    args.mask = mask_of(run.input(RLK_GAE_IN_MASK));
    args.bootstrap = in(RLK_GAE_IN_BOOTSTRAP);
    args.gamma = params().gamma;
    args.lam = params().lam;
    args.carry = params().mask_rule == RLK_GAE_MASK_RULE_CARRY;
    args.advantages = array_of(run.output(RLK_GAE_OUT_ADVANTAGES));
    args.returns = array_of(run.output(RLK_GAE_OUT_RETURNS));
    args.workspace = run.workspace();
    report(run, cpu::gae(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuGae::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& rewards = *call.input(RLK_GAE_IN_REWARDS);
  return support(call, scan_workspace_bytes(rewards, call.input(RLK_GAE_IN_CU_SEQLENS)), bytes_of(call),
                 static_cast<double>(sdk::element_count(rewards)) * 1000);
}

std::unique_ptr<sdk::Plan> CpuGae::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<GaePlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
