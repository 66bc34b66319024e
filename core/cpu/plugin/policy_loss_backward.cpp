// policy_loss_backward behind the plugin ABI.
#include "core/cpu/policy/policy_loss.hpp"

#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/policy_arguments.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::PolicyLossBackward;

class PolicyLossBackwardPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    const rlk_tensor& logp = *run.input(RLK_POLICY_LOSS_BACKWARD_IN_LOGP);
    const int64_t sequences = sequences_of(logp, run.input(RLK_POLICY_LOSS_BACKWARD_IN_CU_SEQLENS));
    return static_cast<uint64_t>(
        policy_loss_backward_workspace_bytes(policy_options(params()), sequences, sdk::element_count(logp)));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    PolicyLossBackwardArgs args;
    args.batch.options = policy_options(params());
    set_batch(*run.input(RLK_POLICY_LOSS_BACKWARD_IN_LOGP), run.input(RLK_POLICY_LOSS_BACKWARD_IN_CU_SEQLENS),
              run.input(RLK_POLICY_LOSS_BACKWARD_IN_MASK), run.input(RLK_POLICY_LOSS_BACKWARD_IN_SEQUENCE_ADVANTAGES),
              args.batch);
    args.batch.advantages = token_tensor(run.input(RLK_POLICY_LOSS_BACKWARD_IN_ADVANTAGES));
    args.batch.old_logp = token_tensor(run.input(RLK_POLICY_LOSS_BACKWARD_IN_OLD_LOGP));
    args.batch.ref_logp = token_tensor(run.input(RLK_POLICY_LOSS_BACKWARD_IN_REF_LOGP));
    args.batch.rollout_logp = token_tensor(run.input(RLK_POLICY_LOSS_BACKWARD_IN_ROLLOUT_LOGP));
    args.batch.weight = token_tensor(run.input(RLK_POLICY_LOSS_BACKWARD_IN_WEIGHT));
    args.batch.entropy = token_tensor(run.input(RLK_POLICY_LOSS_BACKWARD_IN_ENTROPY));
    args.grad_loss = token_tensor(run.input(RLK_POLICY_LOSS_BACKWARD_IN_GRAD_LOSS)).at(0, 0);
    args.grad_per_token = token_tensor(run.input(RLK_POLICY_LOSS_BACKWARD_IN_GRAD_PER_TOKEN));
    args.grad_logp = token_output(run.output(RLK_POLICY_LOSS_BACKWARD_OUT_GRAD_LOGP));
    args.grad_entropy = token_output(run.output(RLK_POLICY_LOSS_BACKWARD_OUT_GRAD_ENTROPY));
    args.workspace = run.workspace();
    report(run, cpu::policy_loss_backward(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuPolicyLossBackward::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& logp = *call.input(RLK_POLICY_LOSS_BACKWARD_IN_LOGP);
  const int64_t sequences = sequences_of(logp, call.input(RLK_POLICY_LOSS_BACKWARD_IN_CU_SEQLENS));
  const double tokens = static_cast<double>(sdk::element_count(logp));
  const PolicyOptions options = policy_options(call.params());
  return support(
      call, static_cast<uint64_t>(policy_loss_backward_workspace_bytes(options, sequences, sdk::element_count(logp))),
      tokens * 6 * static_cast<double>(size_of(kernel_dtype(logp))), tokens * 3000);
}

std::unique_ptr<sdk::Plan> CpuPolicyLossBackward::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<PolicyLossBackwardPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
