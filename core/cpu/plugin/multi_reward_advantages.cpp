// multi_reward_advantages behind the plugin ABI.
#include "core/cpu/advantages/multi_reward_advantages.hpp"

#include "core/cpu/plugin/group_arguments.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::MultiRewardAdvantages;
static_assert(static_cast<int>(GroupingArgs::Kind::ids) == RLK_MULTI_REWARD_ADVANTAGES_GROUPING_IDS);
static_assert(static_cast<int>(GroupAdvantagesArgs::Baseline::rloo) == RLK_MULTI_REWARD_ADVANTAGES_BASELINE_RLOO);
static_assert(static_cast<int>(GroupAdvantagesArgs::Scale::none) == RLK_MULTI_REWARD_ADVANTAGES_SCALE_NONE);
static_assert(RLK_MULTI_REWARD_ADVANTAGES_STD_UNBIASED == 0 && RLK_MULTI_REWARD_ADVANTAGES_EPS_MODE_ADDITIVE == 0);
static_assert(RLK_MULTI_REWARD_ADVANTAGES_SINGLETON_RAW == 1);

uint64_t workspace_bytes(const rlk_multi_reward_advantages_params& params, int64_t rows) {
  return static_cast<uint64_t>(multi_reward_workspace_bytes(kind_of_groups(params), rows));
}

class MultiRewardAdvantagesPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return workspace_bytes(params(), run.symbol(RLK_MULTI_REWARD_ADVANTAGES_SYM_B));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    MultiRewardArgs args;
    args.group = normalisation_of(params());
    args.group.grouping = grouping_of(params(), run.symbol(RLK_MULTI_REWARD_ADVANTAGES_SYM_B),
                                      run.symbol(RLK_MULTI_REWARD_ADVANTAGES_SYM_G),
                                      run.input(RLK_MULTI_REWARD_ADVANTAGES_IN_GROUP_BOUNDARIES),
                                      run.input(RLK_MULTI_REWARD_ADVANTAGES_IN_GROUP_IDS));
    args.kinds = run.symbol(RLK_MULTI_REWARD_ADVANTAGES_SYM_K);
    args.rewards = array_of(run.input(RLK_MULTI_REWARD_ADVANTAGES_IN_REWARDS));
    args.weights = array_of(run.input(RLK_MULTI_REWARD_ADVANTAGES_IN_WEIGHTS));
    args.mask = mask_of(run.input(RLK_MULTI_REWARD_ADVANTAGES_IN_MASK));
    args.normalize_first = params().combine == RLK_MULTI_REWARD_ADVANTAGES_COMBINE_NORMALIZE_THEN_SUM;
    args.advantages = array_of(run.output(RLK_MULTI_REWARD_ADVANTAGES_OUT_ADVANTAGES));
    args.workspace = run.workspace();
    report(run, cpu::multi_reward_advantages(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuMultiRewardAdvantages::query(CpuDevice&, const sdk::Call<Op>& call) {
  const int64_t rows = call.symbol(RLK_MULTI_REWARD_ADVANTAGES_SYM_B);
  const auto rewards = static_cast<double>(rows) * static_cast<double>(call.symbol(RLK_MULTI_REWARD_ADVANTAGES_SYM_K));
  return support(call, workspace_bytes(call.params(), rows), bytes_of(call), rewards * 1000);
}

std::unique_ptr<sdk::Plan> CpuMultiRewardAdvantages::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<MultiRewardAdvantagesPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
