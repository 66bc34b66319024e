// policy_loss behind the plugin ABI.
#include "core/cpu/policy/policy_loss.hpp"

#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/policy_arguments.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::PolicyLoss;
static_assert(kPolicyMetrics == RLK_POLICY_LOSS_N_METRICS, "the declared shape of metrics");

class PolicyLossPlan : public CpuPlan<Op> {
public:
  PolicyLossPlan(const Op::Params& params, ParallelFor parallel) : CpuPlan(params, parallel) {
    if (combines_sequences(policy_options(params))) numerics &= ~static_cast<uint32_t>(RLK_NUMERICS_BATCH_INVARIANT);
  }

  uint64_t prepare(const sdk::Run& run) override {
    const rlk_tensor& logp = *run.input(RLK_POLICY_LOSS_IN_LOGP);
    const int64_t sequences = sequences_of(logp, run.input(RLK_POLICY_LOSS_IN_CU_SEQLENS));
    return static_cast<uint64_t>(
        policy_loss_workspace_bytes(policy_options(params()), sequences, sdk::element_count(logp)));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor& loss = *run.output(RLK_POLICY_LOSS_OUT_LOSS);
    const rlk_tensor* metrics = run.output(RLK_POLICY_LOSS_OUT_METRICS);
    PolicyLossArgs args;
    args.batch.options = policy_options(params());
    set_batch(*run.input(RLK_POLICY_LOSS_IN_LOGP), run.input(RLK_POLICY_LOSS_IN_CU_SEQLENS),
              run.input(RLK_POLICY_LOSS_IN_MASK), run.input(RLK_POLICY_LOSS_IN_SEQUENCE_ADVANTAGES), args.batch);
    args.batch.advantages = token_tensor(run.input(RLK_POLICY_LOSS_IN_ADVANTAGES));
    args.batch.old_logp = token_tensor(run.input(RLK_POLICY_LOSS_IN_OLD_LOGP));
    args.batch.ref_logp = token_tensor(run.input(RLK_POLICY_LOSS_IN_REF_LOGP));
    args.batch.rollout_logp = token_tensor(run.input(RLK_POLICY_LOSS_IN_ROLLOUT_LOGP));
    args.batch.entropy = token_tensor(run.input(RLK_POLICY_LOSS_IN_ENTROPY));
    args.batch.weight = token_tensor(run.input(RLK_POLICY_LOSS_IN_WEIGHT));
    args.loss = sdk::data_of(&loss);
    args.scalar_dtype = kernel_dtype(loss);
    args.per_token = token_output(run.output(RLK_POLICY_LOSS_OUT_PER_TOKEN));
    args.metrics = sdk::data_of(metrics);
    args.metrics_stride = stride_of(metrics, 0);
    args.workspace = run.workspace();
    report(run, cpu::policy_loss(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuPolicyLoss::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& logp = *call.input(RLK_POLICY_LOSS_IN_LOGP);
  const int64_t sequences = sequences_of(logp, call.input(RLK_POLICY_LOSS_IN_CU_SEQLENS));
  const double tokens = static_cast<double>(sdk::element_count(logp));
  const PolicyOptions options = policy_options(call.params());
  return support(call, static_cast<uint64_t>(policy_loss_workspace_bytes(options, sequences, sdk::element_count(logp))),
                 tokens * 6 * static_cast<double>(size_of(kernel_dtype(logp))), tokens * 2000,
                 combines_sequences(options));
}

std::unique_ptr<sdk::Plan> CpuPolicyLoss::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<PolicyLossPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
