// attention: what the implementations share, and the one without matrix units (../attention_simt.cuh).
#include "attention.hpp"

#include "operators.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::simt::host {
namespace {

// q, k and cu_seqlens_q of a call or of an execution.
AttentionSizes sizes_of(const rlk_tensor& q, const rlk_tensor& k, const rlk_tensor* cu_q) {
  if (cu_q != nullptr) {
    return {cu_q->shape[0] - 1, q.shape[0], k.shape[0], q.shape[1], k.shape[1], q.shape[2], true};
  }
  return {q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], false};
}

simt::AttentionTensor strides_of(const rlk_tensor& tensor, bool packed) {
  const int32_t token = packed ? 0 : 1;
  return {sdk::data_of(&tensor), packed ? 0 : tensor.strides[0], tensor.strides[token], tensor.strides[token + 1]};
}

}  // namespace

AttentionSizes attention_sizes(const sdk::Call<sdk::ops::Attention>& call) {
  return sizes_of(*call.input(RLK_ATTENTION_IN_Q), *call.input(RLK_ATTENTION_IN_K),
                  call.input(RLK_ATTENTION_IN_CU_SEQLENS_Q));
}

uint64_t attention_workspace(const AttentionSizes& sizes) {
  return sizes.packed ? static_cast<uint64_t>(sizes.sequences + 2) * sizeof(int64_t) : 0;
}

int64_t attention_grid(const simt::AttentionArgs& args) {
  const int64_t blocks = ceil_divide(args.queries * args.group, args.block_rows);
  if (args.packed != 0) return (blocks + args.sequences) * args.kv_heads;
  return blocks * args.kv_heads * args.sequences;
}

sdk::Refusal refuse_scores(double scale, double softcap, sdk::Dtype dtype) {
  if (softcap != 0 && (softcap < 0x1p-60 || softcap > 0x1p60)) {
    return sdk::Support::no("SOFTCAP", "the kernels' arithmetic takes softcaps between 2^-60 and 2^60");
  }
  // Scores of fp32 would be infinite, and their differences NaN.
  if (scale > 0x1p60 && dtype != sdk::Dtype::f64) {
    return sdk::Support::no("SCALE", "the kernels' arithmetic takes scales up to 2^60");
  }
  return std::nullopt;
}

sdk::Refusal refuse_attention(const Device& device, const sdk::Call<sdk::ops::Attention>& call) {
  if (auto refused = device.refusal()) return refused;
  const auto& params = call.params();
  if (auto refused = refuse_scores(params.scale, params.softcap, sdk::dtype_of(*call.input(RLK_ATTENTION_IN_Q)))) {
    return refused;
  }
  constexpr const char* kNames[] = {"q", "k", "v", "cu_seqlens_q", "cu_seqlens_k"};
  for (uint32_t i = 0; i <= RLK_ATTENTION_IN_V; ++i) {
    if (auto refused = sdk::refuse_strided_rows(call.input(i), kNames[i], "head size")) return refused;
  }
  for (uint32_t i = RLK_ATTENTION_IN_CU_SEQLENS_Q; i <= RLK_ATTENTION_IN_CU_SEQLENS_K; ++i) {
    if (auto refused = sdk::refuse_gaps(call.input(i), kNames[i])) return refused;
  }
  if (auto refused = sdk::refuse_strided_rows(call.output(RLK_ATTENTION_OUT_OUT), "out", "head size")) return refused;
  return sdk::refuse_gaps(call.output(RLK_ATTENTION_OUT_LSE), "lse");
}

double attention_operations(const sdk::Call<sdk::ops::Attention>& call, const AttentionSizes& sizes) {
  const double scores = static_cast<double>(sizes.queries) * static_cast<double>(sizes.keys) *
                        static_cast<double>(sizes.q_heads) /
                        (sizes.packed ? static_cast<double>(std::max<int64_t>(sizes.sequences, 1))
                                      : 1.0 / static_cast<double>(sizes.sequences));
  return 4.0 * scores * static_cast<double>(sizes.head) *
         (call.params().causal != RLK_ATTENTION_CAUSAL_OFF && sizes.queries > 1 ? 0.5 : 1.0);
}

double attention_bytes_us(const Device& device, const AttentionSizes& sizes, sdk::Dtype dtype) {
  const double tokens = static_cast<double>(sizes.packed ? 1 : sizes.sequences) *
                        (2.0 * static_cast<double>(sizes.queries * sizes.q_heads) +
                         2.0 * static_cast<double>(sizes.keys * sizes.kv_heads));
  return device.bytes_us(tokens * static_cast<double>(sizes.head * sdk::bytes_of(dtype)));
}

sdk::Refusal SimtShared::refuse(int64_t head) const {
  if (head > simt::kSimtMaxHead) {
    return sdk::Support::no("HEAD_SIZE", sdk::format("head size %lld; these kernels take up to %d",
                                                     static_cast<long long>(head), simt::kSimtMaxHead));
  }
  if (bytes(head) <= limit) return std::nullopt;
  return sdk::Support::no("SHARED_MEMORY",
                          sdk::format("head size %lld needs %d bytes of shared memory; a block of this device has %lld",
                                      static_cast<long long>(head), bytes(head), static_cast<long long>(limit)));
}

AttentionPlan::AttentionPlan(Device& device, const sdk::Call<sdk::ops::Attention>& call, const char* name)
    : params_(call.params()), place_(device.place()), plan_(device.kernel("attention_simt", "attention_plan_packed")) {
  flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
  for (const int symbol :
       {RLK_ATTENTION_SYM_B, RLK_ATTENTION_SYM_SQ, RLK_ATTENTION_SYM_SK, RLK_ATTENTION_SYM_TQ, RLK_ATTENTION_SYM_TK}) {
    dynamic_symbols |= uint64_t{1} << symbol;
  }
  workspace_bound = params_.layout == RLK_ATTENTION_LAYOUT_PACKED ? UINT64_MAX : 0;
  numerics = kAttentionNumerics;
  variant = name;
}

uint64_t AttentionPlan::prepare(const sdk::Run& run) {
  return attention_workspace(sizes_of(*run.input(RLK_ATTENTION_IN_Q), *run.input(RLK_ATTENTION_IN_K),
                                      run.input(RLK_ATTENTION_IN_CU_SEQLENS_Q)));
}

simt::AttentionArgs AttentionPlan::arguments(const sdk::Run& run) const {
  const rlk_tensor& q = *run.input(RLK_ATTENTION_IN_Q);
  const rlk_tensor& k = *run.input(RLK_ATTENTION_IN_K);
  const rlk_tensor* cu_q = run.input(RLK_ATTENTION_IN_CU_SEQLENS_Q);
  const AttentionSizes sizes = sizes_of(q, k, cu_q);
  simt::AttentionArgs args{};
  args.q = strides_of(q, sizes.packed);
  args.k = strides_of(k, sizes.packed);
  args.v = strides_of(*run.input(RLK_ATTENTION_IN_V), sizes.packed);
  args.out = strides_of(*run.output(RLK_ATTENTION_OUT_OUT), sizes.packed);
  args.lse = sdk::data_of(run.output(RLK_ATTENTION_OUT_LSE));
  if (sizes.packed) {
    args.cu_q = sdk::data_of(cu_q);
    args.cu_k = sdk::data_of(run.input(RLK_ATTENTION_IN_CU_SEQLENS_K));
    args.plan = static_cast<int64_t*>(run.workspace());
    args.packed = 1;
    args.cu_are_i64 = sdk::dtype_of(*cu_q) == sdk::Dtype::i64 ? 1 : 0;
  }
  args.sequences = sizes.sequences;
  args.queries = sizes.queries;
  args.keys = sizes.keys;
  args.q_heads = static_cast<int32_t>(sizes.q_heads);
  args.kv_heads = static_cast<int32_t>(sizes.kv_heads);
  args.group = static_cast<int32_t>(sizes.q_heads / sizes.kv_heads);
  args.head_size = static_cast<int32_t>(sizes.head);
  args.window_left = near_window(params_.window_left);
  args.window_right = near_window(params_.window_right);
  if (params_.causal == RLK_ATTENTION_CAUSAL_ON) args.window_right = 0;
  args.top_left = params_.causal_alignment == RLK_ATTENTION_CAUSAL_ALIGNMENT_TOP_LEFT ? 1 : 0;
  if (const rlk_tensor* key_mask = run.input(RLK_ATTENTION_IN_KEY_MASK); key_mask != nullptr) {
    args.key_mask = sdk::data_of<const uint8_t>(key_mask);
    args.mask_batch_stride = key_mask->strides[0];
    args.mask_key_stride = key_mask->strides[1];
  }
  args.softcap = params_.softcap;
  args.scale = params_.scale > 0 ? params_.scale : 1.0 / std::sqrt(static_cast<double>(sizes.head));
  args.errors = error_sink(run);
  return args;
}

void AttentionPlan::start(const simt::AttentionArgs& args, StreamHandle stream) const {
  if (args.packed != 0) launch(plan_, 1, simt::kPlanThreads, 0, stream, args);
}

namespace {

class AttentionSimtPlan final : public AttentionPlan {
public:
  AttentionSimtPlan(Device& device, const sdk::Call<sdk::ops::Attention>& call)
      : AttentionPlan(device, call, "simt"), shared_(device, sdk::dtype_of(*call.input(RLK_ATTENTION_IN_Q))) {
    kernel_ = device.kernel(
        "attention_simt", std::string("attention_simt_") + sdk::name_of(sdk::dtype_of(*call.input(RLK_ATTENTION_IN_Q))),
        shared_.most());
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    simt::AttentionArgs args = arguments(run);
    args.block_rows = simt::kSimtBlockRows;
    args.key_columns = static_cast<int32_t>(shared_.columns(args.head_size));
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    start(args, handle);
    if (args.queries == 0) return;
    launch(kernel_, attention_grid(args), simt::kSimtWaves * shared_.wave, shared_.bytes(args.head_size), handle, args);
  }

private:
  SimtShared shared_;
  FunctionHandle kernel_ = nullptr;
};

}  // namespace

sdk::Support AttentionSimt::query(Device& device, const sdk::Call<Op>& call) {
  if (auto refused = refuse_attention(device, call)) return *refused;
  const sdk::Dtype dtype = sdk::dtype_of(*call.input(RLK_ATTENTION_IN_Q));
  const AttentionSizes sizes = attention_sizes(call);
  if (auto refused = SimtShared(device, dtype).refuse(sizes.head)) return *refused;
  sdk::Support answer = sdk::Support::yes("simt", kAttentionNumerics, RLK_SUPPORT_OK);
  answer.workspace_bound = attention_workspace(sizes);
  // Measured against the tensor cores' rate: one twentieth of it, half of that again in fp64.
  answer.cost_us =
      kLaunchUs +
      std::max(device.matrix_us((dtype == sdk::Dtype::f64 ? 60.0 : 30.0) * attention_operations(call, sizes)),
               attention_bytes_us(device, sizes, dtype));
  return answer;
}
std::unique_ptr<sdk::Plan> AttentionSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionSimtPlan>(device, call);
}

}  // namespace rlk::simt::host
