// logp behind the plugin ABI.
#include "core/cpu/logp/logp.hpp"

#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/logp_rows.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::Logp;

class LogpPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(
        logp_workspace_bytes(run.input(RLK_LOGP_IN_IDS)->shape[0], run.input(RLK_LOGP_IN_LOGITS)->shape[1]));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor& logits = *run.input(RLK_LOGP_IN_LOGITS);
    const rlk_tensor* bias = run.input(RLK_LOGP_IN_BIAS);
    const rlk_tensor& out = *run.output(RLK_LOGP_OUT_LOGP);
    const rlk_tensor* lse = run.output(RLK_LOGP_OUT_LSE);
    const rlk_tensor* entropy = run.output(RLK_LOGP_OUT_ENTROPY);
    LogpArgs args;
    args.rows = make_rows(params(), logits, *run.input(RLK_LOGP_IN_IDS), run.input(RLK_LOGP_IN_MASK),
                          run.input(RLK_LOGP_IN_ROW_INDICES));
    args.dtype = kernel_dtype(logits);
    args.logits = sdk::data_of(&logits);
    args.row_stride = logits.strides[0];
    args.col_stride = logits.strides[1];
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
    report(run, cpu::logp(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuLogp::query(CpuDevice&, const sdk::Call<Op>& call) {
  const int64_t n = call.symbol(RLK_LOGP_SYM_N), vocab = call.symbol(RLK_LOGP_SYM_V);
  const double elements = static_cast<double>(n) * static_cast<double>(vocab);
  const Dtype dtype = kernel_dtype(*call.input(RLK_LOGP_IN_LOGITS));
  return support(call, static_cast<uint64_t>(logp_workspace_bytes(n, vocab)),
                 elements * static_cast<double>(size_of(dtype)), elements * 20);
}

std::unique_ptr<sdk::Plan> CpuLogp::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
