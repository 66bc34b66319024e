// resampling_weights behind the plugin ABI.
#include "core/cpu/advantages/resampling_weights.hpp"

#include "core/cpu/plugin/arrays.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::ResamplingWeights;
static_assert(static_cast<int>(ResamplingWeightsArgs::Method::max_random) == RLK_RESAMPLING_WEIGHTS_METHOD_MAX_RANDOM);

class ResamplingWeightsPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run&) override { return 0; }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    ResamplingWeightsArgs args;
    args.method = static_cast<ResamplingWeightsArgs::Method>(params().method);
    args.rows = run.symbol(RLK_RESAMPLING_WEIGHTS_SYM_B);
    args.scores = array_of(run.input(RLK_RESAMPLING_WEIGHTS_IN_SCORES));
    args.mask = mask_of(run.input(RLK_RESAMPLING_WEIGHTS_IN_MASK));
    args.power = params().power;
    args.best_weight = params().best_weight;
    args.other_weight = params().other_weight;
    args.eps = params().eps;
    args.weights = array_of(run.output(RLK_RESAMPLING_WEIGHTS_OUT_WEIGHTS));
    cpu::resampling_weights(args, parallel());
  }
};

}  // namespace

sdk::Support CpuResamplingWeights::query(CpuDevice&, const sdk::Call<Op>& call) {
  return support(call, 0, bytes_of(call), static_cast<double>(call.symbol(RLK_RESAMPLING_WEIGHTS_SYM_B)) * 2000);
}

std::unique_ptr<sdk::Plan> CpuResamplingWeights::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<ResamplingWeightsPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
