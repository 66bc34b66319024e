// ratio_kl behind the plugin ABI.
#include "core/cpu/policy/ratio_kl.hpp"

#include "core/cpu/plugin/arrays.hpp"
#include "core/cpu/plugin/implementations.hpp"
#include "core/cpu/plugin/ratio_kl_options.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::RatioKl;

class RatioKlPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run&) override { return 0; }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    RatioKlArgs args;
    args.n = run.symbol(RLK_RATIO_KL_SYM_N);
    args.logp = in(RLK_RATIO_KL_IN_LOGP);
    args.old_logp = in(RLK_RATIO_KL_IN_OLD_LOGP);
    args.ref_logp = in(RLK_RATIO_KL_IN_REF_LOGP);
    args.mask = mask_of(run.input(RLK_RATIO_KL_IN_MASK));
    args.options = ratio_kl_options(params());
    args.masked_ratio = params().masked_ratio;
    args.ratio = array_of(run.output(RLK_RATIO_KL_OUT_RATIO));
    args.kl = array_of(run.output(RLK_RATIO_KL_OUT_KL));
    cpu::ratio_kl(args, parallel());
  }
};

}  // namespace

sdk::Support CpuRatioKl::query(CpuDevice&, const sdk::Call<Op>& call) {
  return support(call, 0, bytes_of(call), static_cast<double>(call.symbol(RLK_RATIO_KL_SYM_N)) * 2000);
}

std::unique_ptr<sdk::Plan> CpuRatioKl::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<RatioKlPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
