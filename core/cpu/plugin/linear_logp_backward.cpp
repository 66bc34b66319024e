// linear_logp_backward behind the plugin ABI.
#include "core/cpu/linear/linear_logp_backward.hpp"

#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/linear_arguments.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::LinearLogpBackward;

LinearRowInput row_input(const rlk_tensor* tensor) {
  if (tensor == nullptr) return {};
  return {sdk::data_of(tensor), kernel_dtype(*tensor), tensor->strides[0]};
}
LinearGradMatrix grad_matrix(const rlk_tensor* tensor) {
  if (tensor == nullptr) return {};
  return {sdk::data_of(tensor), kernel_dtype(*tensor), tensor->strides[0], tensor->strides[1]};
}

class LinearLogpBackwardPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    const LinearSizes sizes = linear_sizes(params(), *run.input(RLK_LINEAR_LOGP_BACKWARD_IN_HIDDEN),
                                           *run.input(RLK_LINEAR_LOGP_BACKWARD_IN_WEIGHT));
    const bool has_grad_bias = run.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_BIAS) != nullptr;
    return static_cast<uint64_t>(linear_logp_backward_workspace_bytes(sizes, has_grad_bias));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor& hidden = *run.input(RLK_LINEAR_LOGP_BACKWARD_IN_HIDDEN);
    const rlk_tensor& weight = *run.input(RLK_LINEAR_LOGP_BACKWARD_IN_WEIGHT);
    const rlk_tensor* bias = run.input(RLK_LINEAR_LOGP_BACKWARD_IN_BIAS);
    const rlk_tensor* grad_bias = run.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_BIAS);
    LinearLogpBackwardArgs args;
    args.rows = linear_rows(params(), hidden, weight, *run.input(RLK_LINEAR_LOGP_BACKWARD_IN_IDS),
                            run.input(RLK_LINEAR_LOGP_BACKWARD_IN_MASK));
    args.dtype = kernel_dtype(hidden);
    args.depth = hidden.shape[1];
    args.hidden = linear_matrix(hidden);
    args.weight = linear_matrix(weight);
    args.bias = sdk::data_of(bias);
    args.bias_stride = stride_of(bias, 0);
    args.lse = row_input(run.input(RLK_LINEAR_LOGP_BACKWARD_IN_LSE));
    args.grad_logp = row_input(run.input(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_LOGP));
    args.grad_lse = row_input(run.input(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_LSE));
    args.grad_entropy = row_input(run.input(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_ENTROPY));
    args.entropy = row_input(run.input(RLK_LINEAR_LOGP_BACKWARD_IN_ENTROPY));
    args.grad_hidden = grad_matrix(run.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_HIDDEN));
    args.grad_weight = grad_matrix(run.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_WEIGHT));
    args.grad_bias = sdk::data_of(grad_bias);
    args.grad_bias_stride = stride_of(grad_bias, 0);
    args.temperature = params().temperature;
    args.softcap = params().softcap;
    args.workspace = run.workspace();
    DataError error;
    check(cpu::linear_logp_backward(args, parallel(), &error));
    report(run, error);
  }
};

}  // namespace

sdk::Support CpuLinearLogpBackward::query(CpuDevice&, const sdk::Call<Op>& call) {
  const LinearSizes sizes = linear_sizes(call.params(), *call.input(RLK_LINEAR_LOGP_BACKWARD_IN_HIDDEN),
                                         *call.input(RLK_LINEAR_LOGP_BACKWARD_IN_WEIGHT));
  const bool has_grad_bias = call.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_BIAS) != nullptr;
  const bool has_grad_weight = call.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_WEIGHT) != nullptr;
  return support(call, static_cast<uint64_t>(linear_logp_backward_workspace_bytes(sizes, has_grad_bias)),
                 (has_grad_weight ? 3 : 2) * linear_bytes(sizes), (has_grad_weight ? 6 : 4) * linear_products(sizes));
}

std::unique_ptr<sdk::Plan> CpuLinearLogpBackward::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<LinearLogpBackwardPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
