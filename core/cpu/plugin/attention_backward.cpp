// attention_backward behind the plugin ABI.
#include "core/cpu/attention/attention_backward.hpp"

#include "core/cpu/plugin/attention_args.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::AttentionBackward;

// Queries times query heads: the elements of lse.
int64_t q_rows(const rlk_tensor* lse) {
  return sdk::element_count(*lse);
}

class AttentionBackwardPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(attention_backward_workspace_bytes(
        run.symbol(RLK_ATTENTION_BACKWARD_SYM_B), q_rows(run.input(RLK_ATTENTION_BACKWARD_IN_LSE)), packed()));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const auto tensor = [&](const rlk_tensor* t) { return attention_tensor(t, packed(), true); };
    const auto numbers = [&](const rlk_tensor* t) { return attention_tensor(t, packed(), false); };
    AttentionBackwardArgs args;
    args.forward = attention_args(
        params(), *run.input(RLK_ATTENTION_BACKWARD_IN_Q), *run.input(RLK_ATTENTION_BACKWARD_IN_K),
        *run.input(RLK_ATTENTION_BACKWARD_IN_V), run.input(RLK_ATTENTION_BACKWARD_IN_CU_SEQLENS_Q),
        run.input(RLK_ATTENTION_BACKWARD_IN_CU_SEQLENS_K), run.input(RLK_ATTENTION_BACKWARD_IN_KEY_MASK));
    args.forward.out = tensor(run.input(RLK_ATTENTION_BACKWARD_IN_OUT));
    args.forward.lse = numbers(run.input(RLK_ATTENTION_BACKWARD_IN_LSE));
    args.forward.workspace = run.workspace();
    args.grad_out = tensor(run.input(RLK_ATTENTION_BACKWARD_IN_GRAD_OUT));
    args.grad_lse = numbers(run.input(RLK_ATTENTION_BACKWARD_IN_GRAD_LSE));
    args.grad_q = tensor(run.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_Q));
    args.grad_k = tensor(run.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_K));
    args.grad_v = tensor(run.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_V));
    DataError error;
    if (cpu::attention_backward(args, parallel(), &error) == AttentionStatus::out_of_memory) {
      throw sdk::Error(RLK_OUT_OF_MEMORY,
                       "no host memory for the scratch of a thread (about 1 MiB); the gradients are incomplete");
    }
    report(run, error);
  }

private:
  bool packed() const { return params().layout == RLK_ATTENTION_BACKWARD_LAYOUT_PACKED; }
};

}  // namespace

sdk::Support CpuAttentionBackward::query(CpuDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor& q = *call.input(RLK_ATTENTION_BACKWARD_IN_Q);
  const rlk_tensor& k = *call.input(RLK_ATTENTION_BACKWARD_IN_K);
  const int64_t batch = call.symbol(RLK_ATTENTION_BACKWARD_SYM_B);
  const bool packed = call.params().layout == RLK_ATTENTION_BACKWARD_LAYOUT_PACKED;
  const double elements = static_cast<double>(4 * sdk::element_count(q) + 4 * sdk::element_count(k));
  return support(call,
                 static_cast<uint64_t>(attention_backward_workspace_bytes(
                     batch, q_rows(call.input(RLK_ATTENTION_BACKWARD_IN_LSE)), packed)),
                 elements * static_cast<double>(size_of(kernel_dtype(q))),
                 14 * attention_keys_seen(call.params(), k, batch) * static_cast<double>(sdk::element_count(q)));
}

std::unique_ptr<sdk::Plan> CpuAttentionBackward::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionBackwardPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
