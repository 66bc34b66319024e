// logits_ratio_kl and its backward behind the plugin ABI.
#include "core/cpu/policy/logits_ratio_kl.hpp"

#include <cstring>

#include "core/cpu/plugin/arrays.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Forward = sdk::ops::LogitsRatioKl;
using Backward = sdk::ops::LogitsRatioKlBackward;

template <class Params>
LogpRows rows_of(const Params& params, const rlk_tensor& logits, const rlk_tensor& ids, const rlk_tensor* mask) {
  LogpRows rows;
  rows.n = ids.shape[0];
  rows.logits_rows = logits.shape[0];
  rows.vocab = logits.shape[1];
  rows.ids = sdk::data_of(&ids);
  rows.ids_are_i64 = is_i64(ids);
  rows.ids_stride = ids.strides[0];
  rows.mask = sdk::data_of<const uint8_t>(mask);
  rows.mask_stride = stride_of(mask, 0);
  rows.ignore_index = params.ignore_index;
  return rows;
}

class ForwardPlan : public CpuPlan<Forward> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(
        logits_ratio_kl_workspace_bytes(run.symbol(RLK_LOGITS_RATIO_KL_SYM_N), run.symbol(RLK_LOGITS_RATIO_KL_SYM_V)));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto out = [&run](uint32_t i) { return array_of(run.output(i)); };
    const rlk_tensor& logits = *run.input(RLK_LOGITS_RATIO_KL_IN_LOGITS);
    const rlk_tensor* reference = run.input(RLK_LOGITS_RATIO_KL_IN_REF_LOGITS);
    LogitsRatioKlArgs args;
    args.rows =
        rows_of(params(), logits, *run.input(RLK_LOGITS_RATIO_KL_IN_IDS), run.input(RLK_LOGITS_RATIO_KL_IN_MASK));
    args.dtype = kernel_dtype(logits);
    args.logits = sdk::data_of(&logits);
    args.policy_row_stride = logits.strides[0];
    args.policy_col_stride = logits.strides[1];
    args.has_reference = reference != nullptr;
    args.ref_logits = sdk::data_of(reference);
    args.ref_row_stride = stride_of(reference, 0);
    args.ref_col_stride = stride_of(reference, 1);
    args.old_logp = array_of(run.input(RLK_LOGITS_RATIO_KL_IN_OLD_LOGP));
    std::memcpy(static_cast<void*>(&args.params), &params(), sizeof(args.params));
    args.ratio = out(RLK_LOGITS_RATIO_KL_OUT_RATIO);
    args.kl = out(RLK_LOGITS_RATIO_KL_OUT_KL);
    args.logp = out(RLK_LOGITS_RATIO_KL_OUT_LOGP);
    args.lse = out(RLK_LOGITS_RATIO_KL_OUT_LSE);
    args.ref_logp = out(RLK_LOGITS_RATIO_KL_OUT_REF_LOGP);
    args.workspace = run.workspace();
    report(run, cpu::logits_ratio_kl(args, parallel()));
  }
};

class BackwardPlan : public CpuPlan<Backward> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(
        logits_ratio_kl_backward_workspace_bytes(run.symbol(RLK_LOGITS_RATIO_KL_BACKWARD_SYM_N)));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    const rlk_tensor& logits = *run.input(RLK_LOGITS_RATIO_KL_BACKWARD_IN_LOGITS);
    const rlk_tensor& gradient = *run.output(RLK_LOGITS_RATIO_KL_BACKWARD_OUT_GRAD_LOGITS);
    LogitsRatioKlBackwardArgs args;
    args.rows = rows_of(params(), logits, *run.input(RLK_LOGITS_RATIO_KL_BACKWARD_IN_IDS),
                        run.input(RLK_LOGITS_RATIO_KL_BACKWARD_IN_MASK));
    args.dtype = kernel_dtype(logits);
    args.logits = sdk::data_of(&logits);
    args.row_stride = logits.strides[0];
    args.col_stride = logits.strides[1];
    args.lse = in(RLK_LOGITS_RATIO_KL_BACKWARD_IN_LSE);
    args.grad_ratio = in(RLK_LOGITS_RATIO_KL_BACKWARD_IN_GRAD_RATIO);
    args.grad_kl = in(RLK_LOGITS_RATIO_KL_BACKWARD_IN_GRAD_KL);
    args.old_logp = in(RLK_LOGITS_RATIO_KL_BACKWARD_IN_OLD_LOGP);
    args.ref_logp = in(RLK_LOGITS_RATIO_KL_BACKWARD_IN_REF_LOGP);
    std::memcpy(static_cast<void*>(&args.params), &params(), sizeof(args.params));
    args.grad_logits = sdk::data_of(&gradient);
    args.grad_row_stride = gradient.strides[0];
    args.grad_col_stride = gradient.strides[1];
    args.workspace = run.workspace();
    report(run, cpu::logits_ratio_kl_backward(args, parallel()));
  }
};

}  // namespace

sdk::Support CpuLogitsRatioKl::query(CpuDevice&, const sdk::Call<Op>& call) {
  const int64_t n = call.symbol(RLK_LOGITS_RATIO_KL_SYM_N), vocab = call.symbol(RLK_LOGITS_RATIO_KL_SYM_V);
  return support(call, static_cast<uint64_t>(logits_ratio_kl_workspace_bytes(n, vocab)), bytes_of(call),
                 static_cast<double>(n) * static_cast<double>(vocab) * 40);
}
std::unique_ptr<sdk::Plan> CpuLogitsRatioKl::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<ForwardPlan>(call.params(), device.parallel());
}

sdk::Support CpuLogitsRatioKlBackward::query(CpuDevice&, const sdk::Call<Op>& call) {
  const int64_t n = call.symbol(RLK_LOGITS_RATIO_KL_BACKWARD_SYM_N);
  const int64_t vocab = call.symbol(RLK_LOGITS_RATIO_KL_BACKWARD_SYM_V);
  return support(call, static_cast<uint64_t>(logits_ratio_kl_backward_workspace_bytes(n)), bytes_of(call),
                 static_cast<double>(n) * static_cast<double>(vocab) * 25);
}
std::unique_ptr<sdk::Plan> CpuLogitsRatioKlBackward::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<BackwardPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
