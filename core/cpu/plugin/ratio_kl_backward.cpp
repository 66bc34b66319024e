// ratio_kl_backward behind the plugin ABI.
#include "core/cpu/policy/ratio_kl.hpp"

#include "core/cpu/plugin/arrays.hpp"
#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/ratio_kl_options.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::RatioKlBackward;

class RatioKlBackwardPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run&) override { return 0; }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    RatioKlBackwardArgs args;
    args.n = run.symbol(RLK_RATIO_KL_BACKWARD_SYM_N);
    args.logp = in(RLK_RATIO_KL_BACKWARD_IN_LOGP);
    args.grad_ratio = in(RLK_RATIO_KL_BACKWARD_IN_GRAD_RATIO);
    args.grad_kl = in(RLK_RATIO_KL_BACKWARD_IN_GRAD_KL);
    args.old_logp = in(RLK_RATIO_KL_BACKWARD_IN_OLD_LOGP);
    args.ref_logp = in(RLK_RATIO_KL_BACKWARD_IN_REF_LOGP);
    args.mask = mask_of(run.input(RLK_RATIO_KL_BACKWARD_IN_MASK));
    args.options = ratio_kl_options(params());
    args.grad_logp = array_of(run.output(RLK_RATIO_KL_BACKWARD_OUT_GRAD_LOGP));
    cpu::ratio_kl_backward(args, parallel());
  }
};

}  // namespace

sdk::Support CpuRatioKlBackward::query(CpuDevice&, const sdk::Call<Op>& call) {
  return support(call, 0, bytes_of(call), static_cast<double>(call.symbol(RLK_RATIO_KL_BACKWARD_SYM_N)) * 2000);
}

std::unique_ptr<sdk::Plan> CpuRatioKlBackward::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<RatioKlBackwardPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
