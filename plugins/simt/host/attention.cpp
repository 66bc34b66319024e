// attention: what the implementations share, and the one without matrix units (../attention_simt.cuh).
#include "attention.hpp"

#include "operators.hpp"

namespace rlk::simt::host {
namespace {

using Op = sdk::ops::Attention;
using Named = sdk::Arguments<Op>;
using sdk::ops::attention::Layout;

AttentionSizes sizes_of(const Named& call) {
  const bool packed = call.params.layout == Layout::packed;
  return {call.B, packed ? call.Tq : call.Sq, packed ? call.Tk : call.Sk, call.Hq, call.Hkv, call.D, packed};
}

simt::AttentionTensor strides_of(const rlk_tensor& tensor, bool packed) {
  const int32_t token = packed ? 0 : 1;
  return {sdk::data_of(&tensor), packed ? 0 : tensor.strides[0], tensor.strides[token], tensor.strides[token + 1]};
}

}  // namespace

AttentionSizes attention_sizes(const sdk::Call<Op>& call) {
  return sizes_of(sdk::arguments_of(call));
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

sdk::Refusal refuse_strided_heads(std::initializer_list<NamedTensor> tensors) {
  for (const auto& [tensor, name] : tensors) {
    if (auto refused = sdk::refuse_strided_rows(tensor, name, "head size")) return refused;
  }
  return std::nullopt;
}

bool is_wide(const rlk_tensor& tensor) {
  if (tensor.alignment % 16 != 0) return false;
  if (sdk::is_contiguous(tensor)) return true;  // D, which these kernels want to be a multiple of 8, makes every stride
  if (tensor.strides[tensor.ndim - 1] != 1) return false;
  for (int32_t d = 0; d + 1 < tensor.ndim; ++d) {
    if (tensor.strides[d] % 8 != 0) return false;  // of a single one too: a plan serves other sizes, not other strides
  }
  return true;
}

sdk::Refusal refuse_narrow(std::initializer_list<const rlk_tensor*> tensors, const char* which) {
  for (const rlk_tensor* tensor : tensors) {
    if (tensor == nullptr || is_wide(*tensor)) continue;
    return sdk::Support::no("ALIGNMENT",
                            sdk::format("%s must start on 16 bytes, with strides of multiples of 8", which),
                            RLK_SUPPORT_IF_CONTIGUOUS);
  }
  return std::nullopt;
}

sdk::Refusal refuse_head_size(int64_t head, int64_t most, const char* kernels) {
  if (head % 8 == 0 && head <= most) return std::nullopt;
  return sdk::Support::no("HEAD_SIZE",
                          sdk::format("head size %lld; %s take multiples of 8 up to %lld", static_cast<long long>(head),
                                      kernels, static_cast<long long>(most)));
}

sdk::Refusal refuse_shared_memory(int64_t head, int64_t bytes, int64_t limit) {
  if (bytes <= limit) return std::nullopt;
  return sdk::Support::no(
      "SHARED_MEMORY",
      sdk::format("head size %lld needs %lld bytes of shared memory; a block of this device has %lld",
                  static_cast<long long>(head), static_cast<long long>(bytes), static_cast<long long>(limit)));
}

sdk::Refusal refuse_attention(const Device& device, const sdk::Call<Op>& described) {
  if (auto refused = device.refusal()) return refused;
  const Named call = sdk::arguments_of(described);
  if (auto refused = refuse_scores(call.params.scale, call.params.softcap, sdk::dtype_of(*call.q))) return refused;
  if (auto refused = refuse_strided_heads({{call.q, "q"}, {call.k, "k"}, {call.v, "v"}})) return refused;
  if (auto refused = sdk::refuse_gaps(call.cu_seqlens_q, "cu_seqlens_q")) return refused;
  if (auto refused = sdk::refuse_gaps(call.cu_seqlens_k, "cu_seqlens_k")) return refused;
  if (auto refused = refuse_strided_heads({{call.out, "out"}})) return refused;
  return sdk::refuse_gaps(call.lse, "lse");
}

double attention_operations(const sdk::Call<Op>& call, const AttentionSizes& sizes) {
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

bool is_for_large_blocks(const simt::AttentionArgs& args, int64_t multiprocessors) {
  const int64_t rows = args.queries * args.group / (args.packed != 0 ? std::max<int64_t>(args.sequences, 1) : 1);
  const int64_t heads = args.kv_heads * args.sequences;
  // More queries than keys, which no decoder has, and few keys take large blocks on every device: they need a few
  // microseconds either way, and so the small cases of a verification run these kernels too.
  const bool is_rare = args.queries > args.keys && args.keys <= 128;
  return rows > kSmallBlock && (is_rare || heads * ceil_divide(rows, kLargeBlock) >= multiprocessors);
}

double attention_matrix_us(const Device& device, const sdk::Call<Op>& call, double matrix_work) {
  const AttentionSizes sizes = attention_sizes(call);
  const int64_t rows = sizes.queries * sizes.q_heads / sizes.kv_heads;
  const int64_t of_sequences = sizes.packed ? ceil_divide(rows, kSmallBlock) + sizes.sequences
                                            : ceil_divide(rows, kSmallBlock) * sizes.sequences;
  const double idle = idle_factor(device, static_cast<double>(of_sequences * sizes.kv_heads));
  return kLaunchUs * (sizes.packed ? 2 : 1) +
         idle * std::max(device.matrix_us(matrix_work * attention_operations(call, sizes)),
                         attention_bytes_us(device, sizes, sdk::dtype_of(*sdk::arguments_of(call).q)));
}

sdk::Refusal SimtShared::refuse(int64_t head) const {
  if (head > simt::kSimtMaxHead) {
    return sdk::Support::no("HEAD_SIZE", sdk::format("head size %lld; these kernels take up to %d",
                                                     static_cast<long long>(head), simt::kSimtMaxHead));
  }
  return refuse_shared_memory(head, bytes(head), limit);
}

AttentionPlan::AttentionPlan(Device& device, const sdk::Call<Op>& call)
    : OperatorPlan(device, call), plan_(device.kernel("attention_simt", "attention_plan_packed")) {
  dynamic_symbols = sdk::bits_of(&Named::B, &Named::Sq, &Named::Sk, &Named::Tq, &Named::Tk);
  workspace_bound = params_.layout == RLK_ATTENTION_LAYOUT_PACKED ? UINT64_MAX : 0;
}

uint64_t AttentionPlan::prepare(const sdk::Run& run) {
  return attention_workspace(sizes_of(arguments_of(run)));
}

simt::AttentionArgs AttentionPlan::arguments(const sdk::Run& run) const {
  const Named call = arguments_of(run);
  const AttentionSizes sizes = sizes_of(call);
  simt::AttentionArgs args{};
  args.q = strides_of(*call.q, sizes.packed);
  args.k = strides_of(*call.k, sizes.packed);
  args.v = strides_of(*call.v, sizes.packed);
  args.out = strides_of(*call.out, sizes.packed);
  args.lse = sdk::data_of(call.lse);
  if (sizes.packed) {
    args.cu_q = sdk::data_of(call.cu_seqlens_q);
    args.cu_k = sdk::data_of(call.cu_seqlens_k);
    args.plan = static_cast<int64_t*>(run.workspace());
    args.packed = 1;
    args.cu_are_i64 = sdk::dtype_of(*call.cu_seqlens_q) == sdk::Dtype::i64 ? 1 : 0;
  }
  args.sequences = sizes.sequences;
  args.queries = sizes.queries;
  args.keys = sizes.keys;
  set_heads_and_scores(args, call);
  args.top_left = is_top_left(call) ? 1 : 0;
  if (call.key_mask != nullptr) {
    args.key_mask = sdk::data_of<const uint8_t>(call.key_mask);
    args.mask_batch_stride = call.key_mask->strides[0];
    args.mask_key_stride = call.key_mask->strides[1];
  }
  args.errors = error_sink(run);
  return args;
}

void AttentionPlan::start(const simt::AttentionArgs& args, StreamHandle stream) const {
  if (args.packed != 0) launch(plan_, 1, simt::kPlanThreads, 0, stream, args);
}

namespace {

class AttentionSimtPlan final : public AttentionPlan {
public:
  AttentionSimtPlan(Device& device, const sdk::Call<Op>& call)
      : AttentionPlan(device, call), shared_(device, dtype_of(call)) {
    kernel_ =
        device.kernel("attention_simt", std::string("attention_simt_") + sdk::name_of(dtype_of(call)), shared_.most());
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
  static sdk::Dtype dtype_of(const sdk::Call<Op>& call) { return sdk::dtype_of(*sdk::arguments_of(call).q); }

  SimtShared shared_;
  FunctionHandle kernel_ = nullptr;
};

}  // namespace

sdk::Support AttentionSimt::query(Device& device, const sdk::Call<Op>& call) {
  if (auto refused = refuse_attention(device, call)) return *refused;
  const sdk::Dtype dtype = sdk::dtype_of(*sdk::arguments_of(call).q);
  const AttentionSizes sizes = attention_sizes(call);
  if (auto refused = SimtShared(device, dtype).refuse(sizes.head)) return *refused;
  sdk::Support answer = sdk::Support::yes(kName, kAttentionNumerics, RLK_SUPPORT_OK);
  answer.workspace_bound = attention_workspace(sizes);
  // Blocks multiply all their rows, whatever has them.
  const int64_t rows = sizes.queries * (sizes.q_heads / sizes.kv_heads);  // of a key head
  const int64_t of_sequences = sizes.packed ? ceil_divide(rows, simt::kSimtBlockRows) + sizes.sequences
                                            : ceil_divide(rows, simt::kSimtBlockRows) * sizes.sequences;
  const int64_t all_rows = std::max<int64_t>(sizes.packed ? rows : rows * sizes.sequences, 1);
  const double padding = static_cast<double>(of_sequences * simt::kSimtBlockRows) / static_cast<double>(all_rows);
  const double operations = padding * slower_than_matrix_units(dtype) * attention_operations(call, sizes);
  answer.cost_us = kLaunchUs + idle_factor(device, static_cast<double>(of_sequences * sizes.kv_heads)) *
                                   std::max(device.matrix_us(operations), attention_bytes_us(device, sizes, dtype));
  return answer;
}
std::unique_ptr<sdk::Plan> AttentionSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionSimtPlan>(device, call);
}

}  // namespace rlk::simt::host
