// grpo_loss_backward behind the plugin ABI.
#include "core/cpu/policy/grpo_loss.hpp"

#include "core/cpu/plugin/grpo_arguments.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::GrpoLossBackward;
static_assert(RLK_GRPO_LOSS_BACKWARD_STD_UNBIASED == 0 && RLK_GRPO_LOSS_BACKWARD_EPS_MODE_ADDITIVE == 0,
              "as grpo_batch takes them");

class GrpoLossBackwardPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    const rlk_tensor& ids = *run.input(RLK_GRPO_LOSS_BACKWARD_IN_IDS);
    return static_cast<uint64_t>(grpo_loss_backward_workspace_bytes(ids.shape[0], ids.shape[1]));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    GrpoLossBackwardArgs args;
    args.batch =
        grpo_batch(params(), *run.input(RLK_GRPO_LOSS_BACKWARD_IN_LOGITS), *run.input(RLK_GRPO_LOSS_BACKWARD_IN_IDS),
                   *run.input(RLK_GRPO_LOSS_BACKWARD_IN_REWARDS), run.input(RLK_GRPO_LOSS_BACKWARD_IN_MASK),
                   run.input(RLK_GRPO_LOSS_BACKWARD_IN_GROUP_BOUNDARIES));
    args.batch.old_logp = grpo_tensor(run.input(RLK_GRPO_LOSS_BACKWARD_IN_OLD_LOGP));
    args.lse = grpo_tensor(run.input(RLK_GRPO_LOSS_BACKWARD_IN_LSE));
    args.ref_logp = grpo_tensor(run.input(RLK_GRPO_LOSS_BACKWARD_IN_REF_LOGP));
    args.grad_loss = grpo_tensor(run.input(RLK_GRPO_LOSS_BACKWARD_IN_GRAD_LOSS)).at(0, 0);
    args.grad_logits = grpo_tensor(run.output(RLK_GRPO_LOSS_BACKWARD_OUT_GRAD_LOGITS));
    args.workspace = run.workspace();
    report(run, cpu::grpo_loss_backward(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuGrpoLossBackward::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& logits = *call.input(RLK_GRPO_LOSS_BACKWARD_IN_LOGITS);
  const double elements = static_cast<double>(sdk::element_count(logits));
  return support(call, static_cast<uint64_t>(grpo_loss_backward_workspace_bytes(logits.shape[0], logits.shape[1])),
                 2 * elements * static_cast<double>(size_of(kernel_dtype(logits))), elements * 25);
}

std::unique_ptr<sdk::Plan> CpuGrpoLossBackward::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<GrpoLossBackwardPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
