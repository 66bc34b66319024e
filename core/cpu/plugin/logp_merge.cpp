// logp_merge behind the plugin ABI.
#include "core/cpu/logp/logp_merge.hpp"

#include "core/cpu/plugin/arguments.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::LogpMerge;

class LogpMergePlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run&) override { return 0; }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor& shard_logp = *run.input(RLK_LOGP_MERGE_IN_SHARD_LOGP);
    LogpMergeArgs args;
    args.dtype = kernel_dtype(shard_logp);
    args.shards = shard_logp.shape[0];
    args.rows = shard_logp.shape[1];
    const auto shards = [](const rlk_tensor* tensor) {
      return ShardNumbers{sdk::data_of(tensor), stride_of(tensor, 0), stride_of(tensor, 1)};
    };
    const auto rows = [](const rlk_tensor* tensor) { return RowNumbers{sdk::data_of(tensor), stride_of(tensor, 0)}; };
    args.shard_logp = shards(&shard_logp);
    args.shard_lse = shards(run.input(RLK_LOGP_MERGE_IN_SHARD_LSE));
    args.shard_entropy = shards(run.input(RLK_LOGP_MERGE_IN_SHARD_ENTROPY));
    args.logp = rows(run.output(RLK_LOGP_MERGE_OUT_LOGP));
    args.lse = rows(run.output(RLK_LOGP_MERGE_OUT_LSE));
    args.entropy = rows(run.output(RLK_LOGP_MERGE_OUT_ENTROPY));
    report(run, cpu::logp_merge(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuLogpMerge::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& shard_logp = *call.input(RLK_LOGP_MERGE_IN_SHARD_LOGP);
  const double numbers = static_cast<double>(sdk::element_count(shard_logp));
  return support(call, 0, 3 * numbers * static_cast<double>(size_of(kernel_dtype(shard_logp))), numbers * 200);
}

std::unique_ptr<sdk::Plan> CpuLogpMerge::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  auto plan = std::make_unique<LogpMergePlan>(call.params(), device.parallel());
  plan->workspace_bound = 0;
  return plan;
}

}  // namespace rlk::cpu
