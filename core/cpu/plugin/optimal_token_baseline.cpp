// optimal_token_baseline behind the plugin ABI.
#include "core/cpu/advantages/optimal_token_baseline.hpp"

#include "core/cpu/plugin/arrays.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::OptimalTokenBaseline;

uint64_t workspace_bytes(const rlk_tensor& tokens, const rlk_tensor* group_ids, const rlk_tensor* cu_seqlens) {
  const int64_t total = static_cast<int64_t>(sdk::element_count(tokens));
  const int64_t sequences = sequences_of(tokens, cu_seqlens).count;
  return static_cast<uint64_t>(token_baseline_workspace_bytes(sequences, total, group_ids != nullptr));
}

class OptimalTokenBaselinePlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return workspace_bytes(*run.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_REWARDS),
                           run.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_GROUP_IDS),
                           run.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_CU_SEQLENS));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    TokenBaselineArgs args;
    args.sequences = sequences_of(*run.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_REWARDS),
                                  run.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_CU_SEQLENS));
    args.group_ids = int_array_of(run.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_GROUP_IDS));
    args.samples_per_prompt = params().samples_per_prompt;
    args.rewards = in(RLK_OPTIMAL_TOKEN_BASELINE_IN_REWARDS);
    args.logp = in(RLK_OPTIMAL_TOKEN_BASELINE_IN_LOGP);
    args.sum_p2 = in(RLK_OPTIMAL_TOKEN_BASELINE_IN_SUM_P2);
    args.mask = mask_of(run.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_MASK));
    args.weight = in(RLK_OPTIMAL_TOKEN_BASELINE_IN_WEIGHT);
    args.active_positions = params().position == RLK_OPTIMAL_TOKEN_BASELINE_POSITION_ACTIVE;
    args.zero_tail = params().zero_tail == RLK_OPTIMAL_TOKEN_BASELINE_ZERO_TAIL_ON;
    args.eps = params().eps;
    args.advantages = array_of(run.output(RLK_OPTIMAL_TOKEN_BASELINE_OUT_ADVANTAGES));
    args.returns = array_of(run.output(RLK_OPTIMAL_TOKEN_BASELINE_OUT_RETURNS));
    args.workspace = run.workspace();
    report(run, cpu::optimal_token_baseline(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuOptimalTokenBaseline::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& rewards = *call.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_REWARDS);
  const uint64_t bytes = workspace_bytes(rewards, call.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_GROUP_IDS),
                                         call.input(RLK_OPTIMAL_TOKEN_BASELINE_IN_CU_SEQLENS));
  return support(call, bytes, bytes_of(call), static_cast<double>(sdk::element_count(rewards)) * 2000);
}

std::unique_ptr<sdk::Plan> CpuOptimalTokenBaseline::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<OptimalTokenBaselinePlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
