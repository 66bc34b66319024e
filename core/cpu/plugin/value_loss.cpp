// value_loss behind the plugin ABI.
#include "core/cpu/policy/value_loss.hpp"

#include "core/cpu/plugin/aggregation.hpp"
#include "core/cpu/plugin/arrays.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::ValueLoss;

class ValueLossPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(value_loss_workspace_bytes(run.symbol(RLK_VALUE_LOSS_SYM_B)));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    ValueLossArgs args;
    args.sequences = sequences_of(*run.input(RLK_VALUE_LOSS_IN_VALUES), run.input(RLK_VALUE_LOSS_IN_CU_SEQLENS));
    args.values = in(RLK_VALUE_LOSS_IN_VALUES);
    args.returns = in(RLK_VALUE_LOSS_IN_RETURNS);
    args.old_values = in(RLK_VALUE_LOSS_IN_OLD_VALUES);
    args.clip_eps = params().clip_eps;
    args.mask = mask_of(run.input(RLK_VALUE_LOSS_IN_MASK));
    args.aggregation = aggregation_of(params());
    args.loss = array_of(run.output(RLK_VALUE_LOSS_OUT_LOSS));
    args.token_loss = array_of(run.output(RLK_VALUE_LOSS_OUT_TOKEN_LOSS));
    args.clip_fraction = array_of(run.output(RLK_VALUE_LOSS_OUT_CLIP_FRACTION));
    args.workspace = run.workspace();
    report(run, cpu::value_loss(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuValueLoss::query(CpuDevice&, const sdk::Call<Op>& call) {
  return support(call, static_cast<uint64_t>(value_loss_workspace_bytes(call.symbol(RLK_VALUE_LOSS_SYM_B))),
                 bytes_of(call), static_cast<double>(sdk::element_count(*call.input(RLK_VALUE_LOSS_IN_VALUES))) * 1000);
}

std::unique_ptr<sdk::Plan> CpuValueLoss::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<ValueLossPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
