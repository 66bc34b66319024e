// attention on warpgroup products (kernels/attention_wgmma.cuh): dense 16-bit tensors of sm_90, without softcap and
// mask.
#include "attention_wgmma.hpp"

#include "hopper.hpp"

namespace rlk::cuda {
namespace {

using namespace simt::host;

constexpr const char* kImage = "attention_wgmma";

class AttentionWgmmaPlan final : public AttentionPlan {
public:
  AttentionWgmmaPlan(Device& device, const sdk::Call<sdk::ops::Attention>& call)
      : AttentionPlan(device, call, AttentionWgmma::kName),
        multiprocessors_(device.multiprocessors()),
        dtype_(sdk::dtype_of(*sdk::arguments_of(call).q)),
        tiles_(wgmma_tiles(wgmma_padded(attention_sizes(call).head))) {
    numerics = kAttentionNumerics & ~RLK_NUMERICS_ACCURATE;
    kernel_ = device.kernel(kImage, sdk::format("%s_%s_%d", kImage, sdk::name_of(dtype_), tiles_.head),
                            tiles_.shared_bytes());
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const simt::AttentionArgs sizes = arguments(run);
    expect_near(sizes.queries, sizes.keys);
    const int64_t blocks = ceil_divide(sizes.queries, kWgmmaRows) * sizes.q_heads * sizes.sequences;
    if (blocks == 0) return;
    const PlaceScope scope(place_);  // the driver makes tensor maps of a current context
    AttentionWgmmaArgs args{};
    const auto map = [&](const simt::AttentionTensor& tensor, int64_t heads, int64_t tokens, int rows) {
      return tensor_map(tensor, dtype_, sizes.head_size, heads, tokens, sizes.sequences, rows);
    };
    args.q = map(sizes.q, sizes.q_heads, sizes.queries, kWgmmaRows);
    if (sizes.keys > 0) {  // else no tile is read
      args.k = map(sizes.k, sizes.kv_heads, sizes.keys, tiles_.keys);
      args.v = map(sizes.v, sizes.kv_heads, sizes.keys, tiles_.keys);
    }
    args.out = map(sizes.out, sizes.q_heads, sizes.queries, kWgmmaWarpgroupRows);
    args.lse = static_cast<float*>(sizes.lse);
    args.sequences = static_cast<int32_t>(sizes.sequences);
    args.queries = static_cast<int32_t>(sizes.queries);
    args.keys = static_cast<int32_t>(sizes.keys);
    args.q_heads = sizes.q_heads;
    args.kv_heads = sizes.kv_heads;
    args.diagonal = sizes.top_left != 0 ? 0 : args.keys - args.queries;
    args.window_left = near_bound(sizes.window_left);
    args.window_right = near_bound(sizes.window_right);
    args.scale = static_cast<float>(sizes.scale * 1.4426950408889634074);
    launch_grid(kernel_, std::min(blocks, multiprocessors_), kWgmmaThreads, tiles_.shared_bytes(), own(stream).handle(),
                args);
  }

private:
  int64_t multiprocessors_;
  sdk::Dtype dtype_;
  WgmmaTiles tiles_;
  FunctionHandle kernel_;
};

}  // namespace

sdk::Support AttentionWgmma::query(Device& device, const sdk::Call<Op>& described) {
  if (auto refused = refuse_attention(device, described)) return *refused;
  if (auto refused = refuse_other_than_hopper(device)) return *refused;
  const auto call = sdk::arguments_of(described);
  const sdk::Dtype dtype = sdk::dtype_of(*call.q);
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  const AttentionSizes sizes = attention_sizes(described);
  if (sizes.packed) return sdk::Support::no("LAYOUT", "packed sequences; these kernels take dense batches");
  if (call.params.softcap != 0) return sdk::Support::no("SOFTCAP", "these kernels have no softcap");
  if (call.key_mask != nullptr) return sdk::Support::no("KEY_MASK", "these kernels have no key_mask");
  if (sizes.head % 8 != 0 || sizes.head > 256) {
    return sdk::Support::no("HEAD_SIZE", sdk::format("head size %lld; these kernels take multiples of 8 up to 256",
                                                     static_cast<long long>(sizes.head)));
  }
  constexpr const char* kNames[] = {"q", "k", "v", "out"};
  const rlk_tensor* const tensors[] = {call.q, call.k, call.v, call.out};
  for (int i = 0; i < 4; ++i) {
    if (!is_wide(*tensors[i])) {
      return sdk::Support::no("ALIGNMENT", "q, k, v and out must start on 16 bytes, with strides of multiples of 8",
                              RLK_SUPPORT_IF_CONTIGUOUS);
    }
    if (auto refused = refuse_tensor_map(*tensors[i], kNames[i])) return *refused;
  }
  if (auto refused = refuse_without(kImage)) return *refused;
  sdk::Support answer = sdk::Support::yes(kName, kAttentionNumerics & ~RLK_NUMERICS_ACCURATE, RLK_SUPPORT_PREFERRED);
  // Whole tiles of queries are computed; where they are fewer than multiprocessors, the others have nothing to do.
  const int64_t tiles = std::max<int64_t>(ceil_divide(sizes.queries, kWgmmaRows), 1);
  const double blocks = static_cast<double>(std::max<int64_t>(tiles * sizes.q_heads * sizes.sequences, 1));
  const double alone = std::max(static_cast<double>(device.multiprocessors()) / blocks, 1.0);
  const double padding =
      static_cast<double>(tiles * kWgmmaRows) / static_cast<double>(std::max<int64_t>(sizes.queries, 1));
  // Measured against the rate of mma.sync instructions.
  answer.cost_us =
      kLaunchUs + alone * std::max(device.matrix_us(0.55 * padding * attention_operations(described, sizes)),
                                   attention_bytes_us(device, sizes, dtype));
  return answer;
}
std::unique_ptr<sdk::Plan> AttentionWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionWgmmaPlan>(device, call);
}

}  // namespace rlk::cuda
