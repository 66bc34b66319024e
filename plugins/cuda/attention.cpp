// attention: two families of kernels. On tensor cores for 16-bit tensors that 16-byte accesses can address
// (kernels/attention_mma.cuh), and without them for everything else (../simt/attention_simt.cuh).
#include "operators.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cuda {
namespace {

constexpr int kWave = 32;
constexpr uint32_t kNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;

struct Sizes {
  int64_t sequences, queries, keys, q_heads, kv_heads, head;
  bool packed;
};

// q, k and cu_seqlens_q of a call or of an execution.
Sizes sizes_of(const rlk_tensor& q, const rlk_tensor& k, const rlk_tensor* cu_q) {
  if (cu_q != nullptr) {
    return {cu_q->shape[0] - 1, q.shape[0], k.shape[0], q.shape[1], k.shape[1], q.shape[2], true};
  }
  return {q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], false};
}

uint64_t workspace_bytes(const Sizes& sizes) {
  return sizes.packed ? static_cast<uint64_t>(sizes.sequences + 2) * sizeof(int64_t) : 0;
}

simt::AttentionTensor strides_of(const rlk_tensor& tensor, bool packed) {
  const int32_t token = packed ? 0 : 1;
  return {sdk::data_of(&tensor), packed ? 0 : tensor.strides[0], tensor.strides[token], tensor.strides[token + 1]};
}

int64_t blocks_per_head(const simt::AttentionArgs& args) {
  const int64_t blocks = ceil_divide(args.queries * args.group, args.block_rows);
  return args.packed != 0 ? blocks + args.sequences : blocks;
}

simt::AttentionArgs arguments(const sdk::Run& run, const rlk_attention_params& params) {
  const rlk_tensor& q = *run.input(RLK_ATTENTION_IN_Q);
  const rlk_tensor& k = *run.input(RLK_ATTENTION_IN_K);
  const rlk_tensor* cu_q = run.input(RLK_ATTENTION_IN_CU_SEQLENS_Q);
  const Sizes sizes = sizes_of(q, k, cu_q);
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
  // A bound beyond any sequence keeps the kernels' sums from overflowing.
  constexpr int64_t kFar = int64_t{1} << 40;
  args.window_left = std::min(params.window_left, kFar);
  args.window_right = std::min(params.window_right, kFar);
  if (params.causal == RLK_ATTENTION_CAUSAL_ON) args.window_right = 0;
  args.top_left = params.causal_alignment == RLK_ATTENTION_CAUSAL_ALIGNMENT_TOP_LEFT ? 1 : 0;
  if (const rlk_tensor* key_mask = run.input(RLK_ATTENTION_IN_KEY_MASK); key_mask != nullptr) {
    args.key_mask = sdk::data_of<const uint8_t>(key_mask);
    args.mask_batch_stride = key_mask->strides[0];
    args.mask_key_stride = key_mask->strides[1];
  }
  args.softcap = params.softcap;
  args.scale = params.scale > 0 ? params.scale : 1.0 / std::sqrt(static_cast<double>(sizes.head));
  args.errors = error_sink(run);
  return args;
}

// What both families ask of a call.
sdk::Refusal refuse(const CudaDevice& device, const sdk::Call<sdk::ops::Attention>& call) {
  if (auto refused = refuse_device(device)) return refused;
  const double softcap = call.params().softcap;
  if (softcap != 0 && (softcap < 0x1p-60 || softcap > 0x1p60)) {
    return sdk::Support::no("SOFTCAP", "the kernels' arithmetic takes softcaps between 2^-60 and 2^60");
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

// Rows of D elements that 16-byte accesses can fetch.
bool is_wide(const rlk_tensor& tensor) {
  if (tensor.alignment % 16 != 0) return false;
  for (int32_t d = 0; d + 1 < tensor.ndim; ++d) {
    if (tensor.shape[d] > 1 && tensor.strides[d] % 8 != 0) return false;
  }
  return true;
}

double operations(const sdk::Call<sdk::ops::Attention>& call, const Sizes& sizes) {
  const double scores = static_cast<double>(sizes.queries) * static_cast<double>(sizes.keys) *
                        static_cast<double>(sizes.q_heads) /
                        (sizes.packed ? static_cast<double>(std::max<int64_t>(sizes.sequences, 1))
                                      : 1.0 / static_cast<double>(sizes.sequences));
  return 4.0 * scores * static_cast<double>(sizes.head) *
         (call.params().causal != RLK_ATTENTION_CAUSAL_OFF && sizes.queries > 1 ? 0.5 : 1.0);
}

double moved_us(const CudaDevice& device, const Sizes& sizes, sdk::Dtype dtype) {
  const double tokens = static_cast<double>(sizes.packed ? 1 : sizes.sequences) *
                        (2.0 * static_cast<double>(sizes.queries * sizes.q_heads) +
                         2.0 * static_cast<double>(sizes.keys * sizes.kv_heads));
  return device.bytes_us(tokens * static_cast<double>(sizes.head * sdk::bytes_of(dtype)));
}

Sizes sizes_of(const sdk::Call<sdk::ops::Attention>& call) {
  return sizes_of(*call.input(RLK_ATTENTION_IN_Q), *call.input(RLK_ATTENTION_IN_K),
                  call.input(RLK_ATTENTION_IN_CU_SEQLENS_Q));
}

class AttentionPlan : public sdk::Plan {
public:
  AttentionPlan(CudaDevice& device, const sdk::Call<sdk::ops::Attention>& call, const char* name)
      : params_(call.params()),
        context_(device.context()),
        plan_(device.kernel(Image::attention_simt, "attention_plan_packed")) {
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    for (const int symbol : {RLK_ATTENTION_SYM_B, RLK_ATTENTION_SYM_SQ, RLK_ATTENTION_SYM_SK, RLK_ATTENTION_SYM_TQ,
                             RLK_ATTENTION_SYM_TK}) {
      dynamic_symbols |= uint64_t{1} << symbol;
    }
    workspace_bound = params_.layout == RLK_ATTENTION_LAYOUT_PACKED ? UINT64_MAX : 0;
    numerics = kNumerics;
    variant = name;
  }

  uint64_t prepare(const sdk::Run& run) override {
    return workspace_bytes(sizes_of(*run.input(RLK_ATTENTION_IN_Q), *run.input(RLK_ATTENTION_IN_K),
                                    run.input(RLK_ATTENTION_IN_CU_SEQLENS_Q)));
  }

protected:
  // The packed layout is checked on the device even when there is nothing to compute.
  void start(simt::AttentionArgs& args, StreamHandle stream) const {
    if (args.packed != 0) launch(plan_, 1, simt::kPlanThreads, 0, stream, args);
  }

  rlk_attention_params params_;
  ContextHandle context_;
  FunctionHandle plan_;
};

class AttentionMmaPlan final : public AttentionPlan {
public:
  AttentionMmaPlan(CudaDevice& device, const sdk::Call<sdk::ops::Attention>& call)
      : AttentionPlan(device, call, "mma"), multiprocessors_(device.multiprocessors()) {
    const int64_t head = sizes_of(call).head;
    head_ = head <= 64 ? 64 : head <= 96 ? 96 : head <= 128 ? 128 : head <= 192 ? 192 : 256;
    const std::string prefix =
        sdk::format("attention_mma_%s_%d_", sdk::name_of(sdk::dtype_of(*call.input(RLK_ATTENTION_IN_Q))), head_);
    const bool options = params_.softcap != 0 || call.input(RLK_ATTENTION_IN_KEY_MASK) != nullptr;
    few_ = device.kernel(Image::attention_mma, prefix + (options ? "64_options" : "64"),
                         simt::attention_mma_shared_bytes(head_, 64));
    if (options) return;
    many_ = device.kernel(Image::attention_mma, prefix + "128", simt::attention_mma_shared_bytes(head_, 128));
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    simt::AttentionArgs args = arguments(run, params_);
    // Large blocks read K and V less often; small ones serve short sequences, and fill the device when there are few.
    // Both give the same bits.
    const int64_t rows = args.queries * args.group / (args.packed != 0 ? std::max<int64_t>(args.sequences, 1) : 1);
    const int64_t heads = args.kv_heads * args.sequences;
    args.block_rows = many_ != nullptr && rows > 64 && heads * ceil_divide(rows, 128) >= multiprocessors_ ? 128 : 64;
    const ContextScope scope(context_);
    const StreamHandle handle = own(stream).handle();
    start(args, handle);
    if (args.queries == 0) return;
    // Large blocks of a head size above 128 take 8 warps, all others 4.
    const int threads = args.block_rows == 128 && head_ > 128 ? 256 : 128;
    launch(args.block_rows == 128 ? many_ : few_,
           blocks_per_head(args) * args.kv_heads * (args.packed != 0 ? 1 : args.sequences), threads,
           simt::attention_mma_shared_bytes(head_, args.block_rows), handle, args);
  }

private:
  int64_t multiprocessors_;
  int head_ = 0;
  FunctionHandle few_ = nullptr, many_ = nullptr;  // the latter not with options, whose registers it has no room for
};

class AttentionSimtPlan final : public AttentionPlan {
public:
  AttentionSimtPlan(CudaDevice& device, const sdk::Call<sdk::ops::Attention>& call)
      : AttentionPlan(device, call, "simt"), dtype_(sdk::dtype_of(*call.input(RLK_ATTENTION_IN_Q))) {
    kernel_ = device.kernel(
        Image::attention_simt, std::string("attention_simt_") + sdk::name_of(dtype_),
        static_cast<int>(simt::attention_simt_shared_bytes(kWave, simt::kSimtMaxHead, accumulator_bytes(dtype_))));
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    simt::AttentionArgs args = arguments(run, params_);
    args.block_rows = simt::kSimtBlockRows;
    const ContextScope scope(context_);
    const StreamHandle handle = own(stream).handle();
    start(args, handle);
    if (args.queries == 0) return;
    launch(kernel_, blocks_per_head(args) * args.kv_heads * (args.packed != 0 ? 1 : args.sequences),
           simt::kSimtWaves * kWave,
           static_cast<int>(simt::attention_simt_shared_bytes(kWave, args.head_size, accumulator_bytes(dtype_))),
           handle, args);
  }

private:
  sdk::Dtype dtype_;
  FunctionHandle kernel_ = nullptr;
};

}  // namespace

sdk::Support AttentionMma::query(CudaDevice& device, const sdk::Call<Op>& call) {
  if (auto refused = refuse(device, call)) return *refused;
  const sdk::Dtype dtype = sdk::dtype_of(*call.input(RLK_ATTENTION_IN_Q));
  if (auto refused = sdk::refuse_dtype(call.input(RLK_ATTENTION_IN_Q), "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) {
    return *refused;
  }
  const Sizes sizes = sizes_of(call);
  if (sizes.head % 8 != 0) {
    return sdk::Support::no("HEAD_SIZE", sdk::format("head size %lld; the tensor core kernels take multiples of 8",
                                                     static_cast<long long>(sizes.head)));
  }
  for (const rlk_tensor* tensor : {call.input(RLK_ATTENTION_IN_Q), call.input(RLK_ATTENTION_IN_K),
                                   call.input(RLK_ATTENTION_IN_V), call.output(RLK_ATTENTION_OUT_OUT)}) {
    if (!is_wide(*tensor)) {
      return sdk::Support::no("ALIGNMENT", "q, k, v and out must start on 16 bytes, with strides of multiples of 8",
                              RLK_SUPPORT_IF_CONTIGUOUS);
    }
  }
  sdk::Support answer = sdk::Support::yes("mma", kNumerics, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = workspace_bytes(sizes);
  answer.cost_us = kLaunchUs * (sizes.packed ? 2 : 1) +
                   std::max(device.matrix_us(1.5 * operations(call, sizes)), moved_us(device, sizes, dtype));
  return answer;
}
std::unique_ptr<sdk::Plan> AttentionMma::plan(CudaDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionMmaPlan>(device, call);
}

sdk::Support AttentionSimt::query(CudaDevice& device, const sdk::Call<Op>& call) {
  if (auto refused = refuse(device, call)) return *refused;
  const sdk::Dtype dtype = sdk::dtype_of(*call.input(RLK_ATTENTION_IN_Q));
  const Sizes sizes = sizes_of(call);
  sdk::Support answer = sdk::Support::yes("simt", kNumerics, RLK_SUPPORT_OK);
  answer.workspace_bound = workspace_bytes(sizes);
  // Measured against the tensor cores' rate: one twentieth of it, half of that again in fp64.
  answer.cost_us =
      kLaunchUs + std::max(device.matrix_us((dtype == sdk::Dtype::f64 ? 60.0 : 30.0) * operations(call, sizes)),
                           moved_us(device, sizes, dtype));
  return answer;
}
std::unique_ptr<sdk::Plan> AttentionSimt::plan(CudaDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionSimtPlan>(device, call);
}

}  // namespace rlk::cuda
