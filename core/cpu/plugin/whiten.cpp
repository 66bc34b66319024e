// whiten behind the plugin ABI.
#include "core/cpu/kernels/whiten.hpp"

#include "core/cpu/plugin/arrays.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::Whiten;
static_assert(static_cast<int>(WhitenArgs::EpsMode::deviation) == RLK_WHITEN_EPS_MODE_DEVIATION);

uint64_t workspace_bytes(int64_t rows, int64_t columns) {
  return static_cast<uint64_t>(whiten_workspace_bytes(rows, columns));
}

class WhitenPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return workspace_bytes(run.symbol(RLK_WHITEN_SYM_B), run.symbol(RLK_WHITEN_SYM_L));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto in = [&run](uint32_t i) { return array_of(run.input(i)); };
    WhitenArgs args;
    args.eps_mode = static_cast<WhitenArgs::EpsMode>(params().eps_mode);
    args.rows = run.symbol(RLK_WHITEN_SYM_B);
    args.columns = run.symbol(RLK_WHITEN_SYM_L);
    args.x = in(RLK_WHITEN_IN_X);
    args.mask = mask_of(run.input(RLK_WHITEN_IN_MASK));
    args.unbiased = params().std == RLK_WHITEN_STD_UNBIASED;
    args.eps = params().eps;
    args.shift_mean = params().shift_mean == RLK_WHITEN_SHIFT_MEAN_ON;
    args.y = array_of(run.output(RLK_WHITEN_OUT_Y));
    args.workspace = run.workspace();
    cpu::whiten(args, parallel());
  }
};

}  // namespace

sdk::Support CpuWhiten::query(CpuDevice&, const sdk::Call<Op>& call) {
  return support(
      call, workspace_bytes(call.symbol(RLK_WHITEN_SYM_B), call.symbol(RLK_WHITEN_SYM_L)), bytes_of(call),
      static_cast<double>(call.symbol(RLK_WHITEN_SYM_B)) * static_cast<double>(call.symbol(RLK_WHITEN_SYM_L)) * 1000);
}

std::unique_ptr<sdk::Plan> CpuWhiten::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<WhitenPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
