// attention behind the plugin ABI.
#include "core/cpu/attention/attention.hpp"

#include "core/cpu/plugin/attention_args.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::Attention;

class AttentionPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(attention_workspace_bytes(batch(run), packed()));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    AttentionArgs args = attention_args(params(), *run.input(RLK_ATTENTION_IN_Q), *run.input(RLK_ATTENTION_IN_K),
                                        *run.input(RLK_ATTENTION_IN_V), run.input(RLK_ATTENTION_IN_CU_SEQLENS_Q),
                                        run.input(RLK_ATTENTION_IN_CU_SEQLENS_K), run.input(RLK_ATTENTION_IN_KEY_MASK));
    args.out = attention_tensor(run.output(RLK_ATTENTION_OUT_OUT), packed(), true);
    args.lse = attention_tensor(run.output(RLK_ATTENTION_OUT_LSE), packed(), false);
    args.workspace = run.workspace();
    DataError error;
    if (cpu::attention(args, parallel(), &error) == AttentionStatus::out_of_memory) {
      throw sdk::Error(RLK_OUT_OF_MEMORY,
                       "no host memory for the scratch of a thread (at most 3 MiB); the output is "
                       "incomplete");
    }
    report(run, error);
  }

private:
  bool packed() const { return params().layout == RLK_ATTENTION_LAYOUT_PACKED; }
  int64_t batch(const sdk::Run& run) const {
    return packed() ? run.input(RLK_ATTENTION_IN_CU_SEQLENS_Q)->shape[0] - 1 : run.input(RLK_ATTENTION_IN_Q)->shape[0];
  }
};

}  // namespace

sdk::Support CpuAttention::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& q = *call.input(RLK_ATTENTION_IN_Q);
  const rlk_tensor& k = *call.input(RLK_ATTENTION_IN_K);
  const bool packed = call.params().layout == RLK_ATTENTION_LAYOUT_PACKED;
  const int64_t batch = call.symbol(RLK_ATTENTION_SYM_B);
  const double keys = attention_keys_seen(call.params(), k, batch);
  const double elements = static_cast<double>(2 * sdk::element_count(q) + 2 * sdk::element_count(k));
  return support(call, static_cast<uint64_t>(attention_workspace_bytes(batch, packed)),
                 elements * static_cast<double>(size_of(kernel_dtype(q))),
                 4 * keys * static_cast<double>(sdk::element_count(q)));
}

std::unique_ptr<sdk::Plan> CpuAttention::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
