// logp_backward behind the plugin ABI.
#include "core/cpu/logp/logp_backward.hpp"

#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/logp_rows.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::LogpBackward;

class LogpBackwardPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(logp_backward_workspace_bytes(run.input(RLK_LOGP_BACKWARD_IN_LOGITS)->shape[0],
                                                               run.input(RLK_LOGP_BACKWARD_IN_ROW_INDICES) != nullptr));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor& logits = *run.input(RLK_LOGP_BACKWARD_IN_LOGITS);
    const rlk_tensor* bias = run.input(RLK_LOGP_BACKWARD_IN_BIAS);
    const rlk_tensor& lse = *run.input(RLK_LOGP_BACKWARD_IN_LSE);
    const rlk_tensor& grad_logp = *run.input(RLK_LOGP_BACKWARD_IN_GRAD_LOGP);
    const rlk_tensor* grad_lse = run.input(RLK_LOGP_BACKWARD_IN_GRAD_LSE);
    const rlk_tensor* grad_entropy = run.input(RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY);
    const rlk_tensor* entropy = run.input(RLK_LOGP_BACKWARD_IN_ENTROPY);
    const rlk_tensor& grad_logits = *run.output(RLK_LOGP_BACKWARD_OUT_GRAD_LOGITS);
    const rlk_tensor* grad_bias = run.output(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS);
    LogpBackwardArgs args;
    args.rows = make_rows(params(), logits, *run.input(RLK_LOGP_BACKWARD_IN_IDS), run.input(RLK_LOGP_BACKWARD_IN_MASK),
                          run.input(RLK_LOGP_BACKWARD_IN_ROW_INDICES));
    args.dtype = kernel_dtype(logits);
    args.logits = sdk::data_of(&logits);
    args.row_stride = logits.strides[0];
    args.col_stride = logits.strides[1];
    args.bias = sdk::data_of(bias);
    args.bias_stride = stride_of(bias, 0);
    args.lse = sdk::data_of(&lse);
    args.lse_stride = lse.strides[0];
    args.grad_logp = sdk::data_of(&grad_logp);
    args.grad_logp_dtype = kernel_dtype(grad_logp);
    args.grad_logp_stride = grad_logp.strides[0];
    args.grad_lse = sdk::data_of(grad_lse);
    args.grad_lse_stride = stride_of(grad_lse, 0);
    args.grad_entropy = sdk::data_of(grad_entropy);
    args.grad_entropy_stride = stride_of(grad_entropy, 0);
    args.entropy = sdk::data_of(entropy);
    args.entropy_stride = stride_of(entropy, 0);
    args.grad_logits = sdk::data_of(&grad_logits);
    args.grad_row_stride = grad_logits.strides[0];
    args.grad_col_stride = grad_logits.strides[1];
    args.grad_bias = sdk::data_of(grad_bias);
    args.grad_bias_stride = stride_of(grad_bias, 0);
    args.temperature = params().temperature;
    args.softcap = params().softcap;
    args.workspace = run.workspace();
    report(run, cpu::logp_backward(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuLogpBackward::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& logits = *call.input(RLK_LOGP_BACKWARD_IN_LOGITS);
  const double elements = static_cast<double>(sdk::element_count(logits));
  const bool has_row_indices = call.input(RLK_LOGP_BACKWARD_IN_ROW_INDICES) != nullptr;
  return support(call, static_cast<uint64_t>(logp_backward_workspace_bytes(logits.shape[0], has_row_indices)),
                 2 * elements * static_cast<double>(size_of(kernel_dtype(logits))), elements * 25);
}

std::unique_ptr<sdk::Plan> CpuLogpBackward::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpBackwardPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
