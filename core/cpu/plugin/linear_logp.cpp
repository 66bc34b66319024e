// linear_logp behind the plugin ABI.
#include "core/cpu/linear/linear_logp.hpp"

#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/linear_arguments.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::LinearLogp;

class LinearLogpPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(linear_logp_workspace_bytes(
        linear_sizes(params(), *run.input(RLK_LINEAR_LOGP_IN_HIDDEN), *run.input(RLK_LINEAR_LOGP_IN_WEIGHT))));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor& hidden = *run.input(RLK_LINEAR_LOGP_IN_HIDDEN);
    const rlk_tensor& weight = *run.input(RLK_LINEAR_LOGP_IN_WEIGHT);
    const rlk_tensor* bias = run.input(RLK_LINEAR_LOGP_IN_BIAS);
    const rlk_tensor& out = *run.output(RLK_LINEAR_LOGP_OUT_LOGP);
    const rlk_tensor* lse = run.output(RLK_LINEAR_LOGP_OUT_LSE);
    const rlk_tensor* entropy = run.output(RLK_LINEAR_LOGP_OUT_ENTROPY);
    LinearLogpArgs args;
    args.rows =
        linear_rows(params(), hidden, weight, *run.input(RLK_LINEAR_LOGP_IN_IDS), run.input(RLK_LINEAR_LOGP_IN_MASK));
    args.dtype = kernel_dtype(hidden);
    args.depth = hidden.shape[1];
    args.hidden = linear_matrix(hidden);
    args.weight = linear_matrix(weight);
    args.bias = sdk::data_of(bias);
    args.bias_stride = stride_of(bias, 0);
    args.logp = sdk::data_of(&out);
    args.logp_dtype = kernel_dtype(out);
    args.logp_stride = out.strides[0];
    args.lse = sdk::data_of(lse);
    args.lse_stride = stride_of(lse, 0);
    args.entropy = sdk::data_of(entropy);
    args.entropy_stride = stride_of(entropy, 0);
    args.temperature = params().temperature;
    args.softcap = params().softcap;
    args.workspace = run.workspace();
    DataError error;
    check(cpu::linear_logp(args, parallel(), &error));
    report(run, error);
  }
};

}  // namespace

sdk::Support CpuLinearLogp::query(CpuDevice&, const sdk::Call<Op>& call) {
  const LinearSizes sizes =
      linear_sizes(call.params(), *call.input(RLK_LINEAR_LOGP_IN_HIDDEN), *call.input(RLK_LINEAR_LOGP_IN_WEIGHT));
  return support(call, static_cast<uint64_t>(linear_logp_workspace_bytes(sizes)), linear_bytes(sizes),
                 2 * linear_products(sizes));
}

std::unique_ptr<sdk::Plan> CpuLinearLogp::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<LinearLogpPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
