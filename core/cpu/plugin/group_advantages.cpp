// group_advantages behind the plugin ABI.
#include "core/cpu/advantages/group_advantages.hpp"

#include "core/cpu/plugin/group_arguments.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::GroupAdvantages;
static_assert(static_cast<int>(GroupingArgs::Kind::ids) == RLK_GROUP_ADVANTAGES_GROUPING_IDS);
static_assert(static_cast<int>(GroupAdvantagesArgs::Baseline::second_best) ==
              RLK_GROUP_ADVANTAGES_BASELINE_SECOND_BEST);
static_assert(static_cast<int>(GroupAdvantagesArgs::Scale::none) == RLK_GROUP_ADVANTAGES_SCALE_NONE);
static_assert(RLK_GROUP_ADVANTAGES_STD_UNBIASED == 0 && RLK_GROUP_ADVANTAGES_EPS_MODE_ADDITIVE == 0);
static_assert(RLK_GROUP_ADVANTAGES_SINGLETON_RAW == 1);

uint64_t workspace_bytes(const rlk_group_advantages_params& params, int64_t rows) {
  return static_cast<uint64_t>(groups_workspace_bytes(kind_of_groups(params), rows));
}

class GroupAdvantagesPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return workspace_bytes(params(), run.symbol(RLK_GROUP_ADVANTAGES_SYM_B));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    GroupAdvantagesArgs args = normalisation_of(params());
    args.grouping =
        grouping_of(params(), run.symbol(RLK_GROUP_ADVANTAGES_SYM_B), run.symbol(RLK_GROUP_ADVANTAGES_SYM_G),
                    run.input(RLK_GROUP_ADVANTAGES_IN_GROUP_BOUNDARIES), run.input(RLK_GROUP_ADVANTAGES_IN_GROUP_IDS));
    args.grouping.mask = mask_of(run.input(RLK_GROUP_ADVANTAGES_IN_MASK));
    args.grouping.workspace = run.workspace();
    args.rewards = in(RLK_GROUP_ADVANTAGES_IN_REWARDS);
    args.lengths = int_array_of(run.input(RLK_GROUP_ADVANTAGES_IN_LENGTHS));
    args.baselines = in(RLK_GROUP_ADVANTAGES_IN_BASELINES);
    args.rescale_nonzero = params().rescale == RLK_GROUP_ADVANTAGES_RESCALE_NONZERO;
    args.advantages = array_of(run.output(RLK_GROUP_ADVANTAGES_OUT_ADVANTAGES));
    report(run, cpu::group_advantages(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuGroupAdvantages::query(CpuDevice&, const sdk::Call<Op>& call) {
  return support(call, workspace_bytes(call.params(), call.symbol(RLK_GROUP_ADVANTAGES_SYM_B)), bytes_of(call),
                 static_cast<double>(call.symbol(RLK_GROUP_ADVANTAGES_SYM_B)) * 1000);
}

std::unique_ptr<sdk::Plan> CpuGroupAdvantages::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<GroupAdvantagesPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
