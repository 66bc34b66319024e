// attention behind the plugin ABI.
#include "core/cpu/kernels/attention.hpp"

#include "core/cpu/plugin/arguments.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::Attention;

// [B, S, H, (D)] when dense, [T, H, (D)] when packed.
AttentionTensor describe(const rlk_tensor* tensor, bool packed, bool has_d) {
  if (tensor == nullptr) return {};
  const int token = packed ? 0 : 1;
  return {sdk::data_of(tensor), packed ? 0 : tensor->strides[0], tensor->strides[token], tensor->strides[token + 1],
          has_d ? tensor->strides[token + 2] : 1};
}

class AttentionPlan : public CpuPlan<Op> {
public:
  using CpuPlan::CpuPlan;

  uint64_t prepare(const sdk::Run& run) override {
    return static_cast<uint64_t>(attention_workspace_bytes(batch(run), packed()));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const rlk_tensor& q = *run.input(RLK_ATTENTION_IN_Q);
    const rlk_tensor& k = *run.input(RLK_ATTENTION_IN_K);
    const rlk_tensor* cu_q = run.input(RLK_ATTENTION_IN_CU_SEQLENS_Q);
    const rlk_tensor* cu_k = run.input(RLK_ATTENTION_IN_CU_SEQLENS_K);
    const int token = packed() ? 0 : 1;
    AttentionArgs args;
    args.dtype = kernel_dtype(q);
    args.q = describe(&q, packed(), true);
    args.k = describe(&k, packed(), true);
    args.v = describe(run.input(RLK_ATTENTION_IN_V), packed(), true);
    args.out = describe(run.output(RLK_ATTENTION_OUT_OUT), packed(), true);
    args.lse = describe(run.output(RLK_ATTENTION_OUT_LSE), packed(), false);
    args.packed = packed();
    args.batch = batch(run);
    args.q_tokens = q.shape[token];
    args.k_tokens = k.shape[token];
    args.q_heads = q.shape[token + 1];
    args.kv_heads = k.shape[token + 1];
    args.head_size = q.shape[token + 2];
    if (packed()) {
      args.cu_seqlens_q = sdk::data_of(cu_q);
      args.cu_seqlens_k = sdk::data_of(cu_k);
      args.cu_seqlens_are_i64 = is_i64(*cu_q);
      args.cu_seqlens_q_stride = cu_q->strides[0];
      args.cu_seqlens_k_stride = cu_k->strides[0];
    }
    args.causal = params().causal == RLK_ATTENTION_CAUSAL_BOTTOM_RIGHT;
    args.window_left = params().window_left;
    args.window_right = params().window_right;
    args.scale = params().scale;
    args.workspace = run.workspace();
    DataError error;
    if (cpu::attention(args, parallel(), &error) == AttentionStatus::out_of_memory) {
      throw sdk::Error(RLK_OUT_OF_MEMORY,
                       "no host memory for the scratch of a thread (below 1 MiB); the output is "
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
  const double keys =
      static_cast<double>(k.shape[packed ? 0 : 1]) / static_cast<double>(packed ? std::max<int64_t>(batch, 1) : 1);
  const double half = call.params().causal == RLK_ATTENTION_CAUSAL_BOTTOM_RIGHT ? 0.5 : 1.0;
  const double elements = static_cast<double>(2 * sdk::element_count(q) + 2 * sdk::element_count(k));
  return support(call, static_cast<uint64_t>(attention_workspace_bytes(batch, packed)),
                 elements * static_cast<double>(size_of(kernel_dtype(q))),
                 4 * half * keys * static_cast<double>(sdk::element_count(q)));
}

std::unique_ptr<sdk::Plan> CpuAttention::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionPlan>(call.params(), device.parallel());
}

}  // namespace rlk::cpu
