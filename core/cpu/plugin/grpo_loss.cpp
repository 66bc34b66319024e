// grpo_loss behind the plugin ABI.
#include "core/cpu/policy/grpo_loss.hpp"

#include "core/cpu/plugin/grpo_arguments.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::GrpoLoss;
static_assert(RLK_GRPO_LOSS_STD_UNBIASED == 0 && RLK_GRPO_LOSS_EPS_MODE_ADDITIVE == 0, "as grpo_batch takes them");

class GrpoLossPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    const rlk_tensor& logits = *run.input(RLK_GRPO_LOSS_IN_LOGITS);
    return static_cast<uint64_t>(grpo_loss_workspace_bytes(logits.shape[0], logits.shape[1], logits.shape[2]));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor* advantages = run.output(RLK_GRPO_LOSS_OUT_ADVANTAGES);
    GrpoLossArgs args;
    args.batch = grpo_batch(params(), *run.input(RLK_GRPO_LOSS_IN_LOGITS), *run.input(RLK_GRPO_LOSS_IN_IDS),
                            *run.input(RLK_GRPO_LOSS_IN_REWARDS), run.input(RLK_GRPO_LOSS_IN_MASK),
                            run.input(RLK_GRPO_LOSS_IN_GROUP_BOUNDARIES));
    args.batch.old_logp = grpo_tensor(run.input(RLK_GRPO_LOSS_IN_OLD_LOGP));
    args.ref_logits = grpo_tensor(run.input(RLK_GRPO_LOSS_IN_REF_LOGITS));
    args.loss = sdk::data_of(run.output(RLK_GRPO_LOSS_OUT_LOSS));
    args.policy_loss = sdk::data_of(run.output(RLK_GRPO_LOSS_OUT_POLICY_LOSS));
    args.kl = sdk::data_of(run.output(RLK_GRPO_LOSS_OUT_KL));
    args.lse = grpo_tensor(run.output(RLK_GRPO_LOSS_OUT_LSE));
    args.logp = grpo_tensor(run.output(RLK_GRPO_LOSS_OUT_LOGP));
    args.ref_logp = grpo_tensor(run.output(RLK_GRPO_LOSS_OUT_REF_LOGP));
    args.advantages = sdk::data_of(advantages);
    args.advantages_stride = stride_of(advantages, 0);
    args.workspace = run.workspace();
    report(run, cpu::grpo_loss(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuGrpoLoss::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& logits = *call.input(RLK_GRPO_LOSS_IN_LOGITS);
  const double passes = call.input(RLK_GRPO_LOSS_IN_REF_LOGITS) != nullptr ? 2 : 1;
  const double elements = passes * static_cast<double>(sdk::element_count(logits));
  return support(call,
                 static_cast<uint64_t>(grpo_loss_workspace_bytes(logits.shape[0], logits.shape[1], logits.shape[2])),
                 elements * static_cast<double>(size_of(kernel_dtype(logits))), elements * 20);
}

std::unique_ptr<sdk::Plan> CpuGrpoLoss::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<GrpoLossPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
