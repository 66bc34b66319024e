// prefix_shared_attention on warpgroup products (kernels/attention_wgmma.cuh): dense 16-bit tensors of sm_90, without
// softcap and masks. A tile of queries of one sample meets the keys of its own, and then those of the prefix, which all
// samples' tiles find in the L2 cache.
#include "prefix_attention_wgmma.hpp"

#include "../simt/host/attention_samples.hpp"
#include "hopper.hpp"

namespace rlk::cuda {
namespace {

using namespace simt::host;
using Op = sdk::ops::PrefixSharedAttention;

constexpr const char* kImage = "prefix_attention_wgmma";
constexpr int64_t kMostHead = 128;
constexpr uint32_t kNumerics = kAttentionNumerics & ~RLK_NUMERICS_ACCURATE;

// The samples of all groups as sequences: the tensor is contiguous, and says nothing else of the stride of a group's
// only sample.
simt::AttentionTensor samples_in_a_row(const simt::SampleTensor& tensor, int64_t tokens, int64_t heads, int64_t head) {
  return {tensor.data, tokens * heads * head, heads * head, head};
}
simt::AttentionTensor prefixes_of(const simt::SampleTensor& tensor) {
  return {tensor.data, tensor.batch_stride, tensor.token_stride, tensor.head_stride};
}

class PrefixAttentionWgmmaPlan final : public OperatorPlan<Op> {
public:
  PrefixAttentionWgmmaPlan(Device& device, const sdk::Call<Op>& described)
      : OperatorPlan(device, described), multiprocessors_(device.multiprocessors()) {
    const auto call = sdk::arguments_of(described);
    dtype_ = sdk::dtype_of(*call.q);
    tiles_ = wgmma_tiles(call.D <= 64 ? 64 : 128);
    kernel_ = device.kernel(kImage, sdk::format("%s_%s_%d", kImage, sdk::name_of(dtype_), tiles_.head),
                            tiles_.shared_bytes());
    dynamic_symbols = sample_symbols<Op>();
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    simt::SampleAttentionArgs sizes{};
    set_samples(sizes, arguments_of(run));
    const int64_t keys = sizes.prefix_keys + sizes.keys, sequences = sizes.batches * sizes.samples;
    expect_near(sizes.queries, keys);
    const int64_t blocks = ceil_divide(sizes.queries, kWgmmaRows) * sizes.q_heads * sequences;
    if (blocks == 0) return;
    const PlaceScope scope(place_);  // the driver makes tensor maps of a current context
    PrefixAttentionWgmmaArgs args{};
    const auto map = [&](const simt::SampleTensor& tensor, bool of_prefix, int64_t heads, int64_t tokens, int rows) {
      return tensor_map(of_prefix ? prefixes_of(tensor) : samples_in_a_row(tensor, tokens, heads, sizes.head_size),
                        dtype_, sizes.head_size, heads, tokens, of_prefix ? sizes.batches : sequences, rows);
    };
    args.q = map(sizes.q, false, sizes.q_heads, sizes.queries, kWgmmaRows);
    args.out = map(sizes.out, false, sizes.q_heads, sizes.queries, kWgmmaWarpgroupRows);
    if (sizes.keys > 0) {  // else no tile is read
      args.k = map(sizes.k, false, sizes.kv_heads, sizes.keys, tiles_.keys);
      args.v = map(sizes.v, false, sizes.kv_heads, sizes.keys, tiles_.keys);
    }
    if (sizes.prefix_keys > 0) {
      args.prefix_k = map(sizes.prefix_k, true, sizes.kv_heads, sizes.prefix_keys, tiles_.keys);
      args.prefix_v = map(sizes.prefix_v, true, sizes.kv_heads, sizes.prefix_keys, tiles_.keys);
    }
    args.lse = static_cast<float*>(sizes.lse.data);
    args.sequences = static_cast<int32_t>(sequences);
    args.samples = static_cast<int32_t>(sizes.samples);
    args.queries = static_cast<int32_t>(sizes.queries);
    args.keys = static_cast<int32_t>(sizes.keys);
    args.prefix_keys = static_cast<int32_t>(sizes.prefix_keys);
    args.q_heads = sizes.q_heads;
    args.kv_heads = sizes.kv_heads;
    args.diagonal = sizes.top_left != 0 ? 0 : static_cast<int32_t>(keys - sizes.queries);
    args.window_left = near_bound(sizes.window_left);
    args.window_right = near_bound(sizes.window_right);
    args.scale = static_cast<float>(sizes.scale * kLog2e);
    launch_grid(kernel_, std::min(blocks, multiprocessors_), kWgmmaThreads, tiles_.shared_bytes(), own(stream).handle(),
                args);
  }

private:
  int64_t multiprocessors_;
  sdk::Dtype dtype_;
  WgmmaTiles tiles_;
  FunctionHandle kernel_ = nullptr;
};

sdk::Refusal refuse_samples(const sdk::Arguments<Op>& call) {
  constexpr const char* kAll = "all tensors";
  for (const NamedTensor& sample : {NamedTensor{call.q, "q"}, {call.k, "k"}, {call.v, "v"}, {call.out, "out"}}) {
    // Samples of all groups are one dimension of the copy engine.
    if (!sdk::is_contiguous(*sample.tensor)) {
      return sdk::Support::no("STRIDES", sdk::format("%s has gaps between samples or tokens", sample.name),
                              RLK_SUPPORT_IF_CONTIGUOUS);
    }
    if (auto refused = refuse_tensors({sample}, kAll)) return refused;
  }
  if (auto refused = refuse_tensors({{call.prefix_k, "prefix_k"}, {call.prefix_v, "prefix_v"}}, kAll)) return refused;
  return sdk::refuse_gaps(call.lse, "lse");
}

}  // namespace

sdk::Support PrefixSharedAttentionWgmma::query(Device& device, const sdk::Call<Op>& described) {
  if (auto refused = device.refusal()) return *refused;
  if (auto refused = refuse_other_than_hopper(device)) return *refused;
  const auto call = sdk::arguments_of(described);
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  if (auto refused = refuse_scores(call.params.scale, call.params.softcap, sdk::dtype_of(*call.q))) return *refused;
  if (call.params.softcap != 0) return sdk::Support::no("SOFTCAP", "these kernels have no softcap");
  if (call.key_mask != nullptr) return sdk::Support::no("KEY_MASK", "these kernels have no key_mask");
  if (call.prefix_mask != nullptr) return sdk::Support::no("KEY_MASK", "these kernels have no prefix_mask");
  if (auto refused = refuse_head_size(call.D, kMostHead)) return *refused;
  if (auto refused = refuse_samples(call)) return *refused;
  if (auto refused = refuse_without(kImage)) return *refused;
  sdk::Support answer = sdk::Support::yes(kName, kNumerics, RLK_SUPPORT_PREFERRED);
  // Whole tiles of queries are computed.
  const int64_t tiles = ceil_divide(std::max<int64_t>(call.Sq, 1), kWgmmaRows);
  const double blocks = static_cast<double>(std::max<int64_t>(tiles * call.Hq * call.B * call.G, 1));
  const double own_keys =
      static_cast<double>(call.Sk) * (call.params.causal == decltype(call.params.causal)::off ? 1 : 0.5);
  const double operations =
      4.0 * blocks * static_cast<double>(kWgmmaRows * call.D) * (static_cast<double>(call.Sp) + own_keys);
  // Measured against the rate of mma.sync instructions.
  answer.cost_us = kLaunchUs + idle_factor(device, blocks) * device.matrix_us(0.55 * operations);
  return answer;
}
std::unique_ptr<sdk::Plan> PrefixSharedAttentionWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<PrefixAttentionWgmmaPlan>(device, call);
}

}  // namespace rlk::cuda
