// The gradients of attention on warpgroup products (kernels/attention_gradients_wgmma.cuh): 16-bit tensors of sm_90.
#include "attention_gradients_wgmma.hpp"

#include "../simt/host/attention_gradients.hpp"
#include "attention_gradients_mma.hpp"
#include "hopper.hpp"
#include "kernels/attention_gradients_wgmma.h"

namespace rlk::cuda {
namespace {

using namespace simt::host;
using Op = sdk::ops::AttentionBackward;

constexpr const char* kImage = "attention_gradients_wgmma";
constexpr const char* kOptionsImage = "attention_gradients_options_wgmma";

bool has_options(const sdk::Arguments<Op>& call) {
  return is_packed<Op>(call) || call.params.softcap != 0 || call.key_mask != nullptr;
}

// grad_q is summed in the order in which blocks come.
constexpr uint32_t kNumerics =
    kAttentionNumerics & ~(RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT);

struct Layout {
  explicit Layout(const sdk::Arguments<Op>& call)
      : packed(is_packed<Op>(call)), padded(gradient_wgmma_padded(call.D)), sequences(call.B) {
    const int64_t queries = packed ? call.Tq : call.Sq;
    tiles = ceil_divide(queries, kGradientWgmmaQueries) + (packed ? call.B : 0);  // of each sequence a short one
    all = queries == 0 ? 0 : tiles * call.Hq * (packed ? 1 : call.B);
  }
  bool packed;
  int padded;  // head size
  int64_t sequences;
  int64_t tiles, all;  // of queries: of a head, when packed a bound for those of all sequences; and of all heads
  uint64_t terms() const { return static_cast<uint64_t>(all) * kGradientWgmmaQueries * sizeof(float); }  // one of two
  uint64_t sums() const { return static_cast<uint64_t>(all * gradient_wgmma_sums(padded)) * sizeof(float); }
  uint64_t plan() const { return packed ? static_cast<uint64_t>(sequences + 2) * sizeof(int64_t) : 0; }  // one of two
  uint64_t maps() const {
    return packed ? static_cast<uint64_t>(sequences) * kGradientWgmmaSequenceMaps * sizeof(SequenceMap) : 0;
  }
  uint64_t total() const {
    return 2 * align_256(terms()) + align_256(sums()) + 2 * align_256(plan()) + align_256(maps());
  }
};

// Tiles of a few queries are mostly empty: many short sequences would need sums many times as large as their tensors.
// A caller can be expected to have 1 GiB, or four times its tensors.
sdk::Refusal refuse_workspace(const sdk::Arguments<Op>& call) {
  constexpr uint64_t kPlain = uint64_t{1} << 30;
  const Layout layout(call);
  const uint64_t needed = layout.total();
  const int64_t queries = layout.packed ? call.Tq : call.B * call.Sq, keys = layout.packed ? call.Tk : call.B * call.Sk;
  const int64_t rows = queries * call.Hq + keys * call.Hkv;  // of four tensors each
  const uint64_t tensors = static_cast<uint64_t>(4 * rows * call.D) * sizeof(uint16_t);
  if (needed <= std::max(kPlain, 4 * tensors)) return std::nullopt;
  return sdk::Support::no(
      "WORKSPACE", sdk::format("%lld sequences of %lld queries take tiles of %d: %llu bytes of workspace for %llu "
                               "of tensors; these kernels ask for 1 GiB, or four times the tensors, at most",
                               static_cast<long long>(call.B),
                               static_cast<long long>(queries / std::max<int64_t>(call.B, 1)), kGradientWgmmaQueries,
                               static_cast<unsigned long long>(needed), static_cast<unsigned long long>(tensors)));
}

// Of one key head; when packed a bound, since every sequence may have a short one.
int64_t key_tiles(const sdk::Arguments<Op>& call) {
  const int64_t keys = gradient_wgmma_keys(gradient_wgmma_padded(call.D));
  if (is_packed<Op>(call)) return call.Tk == 0 ? 0 : ceil_divide(call.Tk, keys) + call.B;
  return ceil_divide(call.Sk, keys) * call.B;
}

class AttentionBackwardWgmmaPlan final : public OperatorPlan<Op> {
public:
  AttentionBackwardWgmmaPlan(Device& device, const sdk::Call<Op>& call)
      : OperatorPlan(device, call), dtype_(sdk::dtype_of(*sdk::arguments_of(call).grad_out)) {
    has_options_ = has_options(sdk::arguments_of(call));
    padded_ = gradient_wgmma_padded(sdk::arguments_of(call).D);
    const std::string name = sdk::name_of(dtype_), image = has_options_ ? kOptionsImage : kImage;
    const auto kernel = [&](const std::string& rest, int shared_bytes = 0) {
      return device.kernel(image.c_str(), image + rest, shared_bytes);
    };
    terms_ = kernel("_terms_" + name);
    const std::string head = "_" + std::to_string(padded_);
    blocks_ = kernel("_" + name + head + (params_.softcap != 0 ? "_cap" : ""), gradient_wgmma_shared_bytes(padded_));
    rows_ = kernel("_rows_" + name + head);
    if (is_packed<Op>(sdk::arguments_of(call))) plan_ = kernel("_plan");
    dynamic_symbols = sample_symbols<Op>();
    workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override { return Layout(arguments_of(run)).total(); }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto call = arguments_of(run);
    const simt::AttentionGradientArgs sizes = gradients_of<Op>(call);
    expect_near(sizes.queries, sizes.keys);
    const Layout layout(call);
    Workspace workspace(run.workspace());
    AttentionGradientOptionsWgmmaArgs args{};
    args.lse = workspace.take<float>(layout.terms());
    args.offset = workspace.take<float>(layout.terms());
    args.sums = workspace.take<float>(layout.sums());
    args.out = sizes.out;
    args.grad_out_rows = sizes.grad_out;
    args.lse_rows = sizes.lse;
    args.grad_lse = sizes.grad_lse;
    args.grad_q = sizes.grad_q;
    args.sequences = static_cast<int32_t>(sizes.batches);
    args.queries = static_cast<int32_t>(sizes.queries);
    args.keys = static_cast<int32_t>(sizes.keys);
    args.q_heads = sizes.q_heads;
    args.kv_heads = sizes.kv_heads;
    args.head_size = sizes.head_size;
    args.query_tiles = static_cast<int32_t>(layout.tiles);
    args.diagonal = sizes.top_left != 0 ? 0 : args.keys - args.queries;
    args.window_left = near_bound(sizes.window_left);
    args.window_right = near_bound(sizes.window_right);
    const bool caps = sizes.softcap > 0;
    args.scale = static_cast<float>(sizes.scale);
    args.scale_log2 = static_cast<float>((caps ? sizes.softcap : sizes.scale) * kLog2e);
    args.softcap_inner = caps ? static_cast<float>(sizes.scale / sizes.softcap) : 0.0f;

    const PlaceScope scope(place_);  // the driver makes tensor maps of a current context
    const StreamHandle handle = own(stream).handle();
    set_maps(args, sizes);
    args.call = sizes;
    if (layout.packed) {
      args.row_plan = workspace.take<int64_t>(layout.plan());
      args.key_plan = workspace.take<int64_t>(layout.plan());
      args.maps = workspace.take<SequenceMap>(layout.maps());
      args.call.row_plan = args.row_plan;
      args.call.key_plan = args.key_plan;
      args.errors = error_sink(run);
      args.block_keys = gradient_wgmma_keys(padded_);
      launch_grid(plan_, 1, simt::kPlanThreads, 0, handle, args);
    }
    const auto launch_one = [&](FunctionHandle kernel, int64_t blocks, int threads, int shared_bytes) {
      if (has_options_) {
        launch_grid(kernel, blocks, threads, shared_bytes, handle, args);
      } else {
        launch_grid(kernel, blocks, threads, shared_bytes, handle,
                    static_cast<const AttentionGradientWgmmaArgs&>(args));
      }
    };
    if (layout.all > 0) {
      fill(args.sums, 0, layout.sums(), handle);
      launch_one(terms_, layout.all / call.Hq * ceil_divide(call.Hq, kGradientWgmmaTermHeads), simt::kGradientThreads,
                 0);
    }
    if (const int64_t blocks = key_tiles(call) * sizes.kv_heads; blocks > 0) {
      launch_one(blocks_, blocks, kWgmmaThreads, gradient_wgmma_shared_bytes(padded_));
    }
    if (layout.all > 0) launch_one(rows_, layout.all, simt::kGradientThreads, 0);
  }

private:
  // Of packed sequences, which lie behind each other like the tokens of one, they are what each one's are made of.
  void set_maps(AttentionGradientWgmmaArgs& args, const simt::AttentionGradientArgs& sizes) const {
    const auto map = [&](const simt::SampleTensor& tensor, int64_t heads, int64_t tokens, int rows) {
      return tensor_map({tensor.data, tensor.batch_stride, tensor.token_stride, tensor.head_stride}, dtype_,
                        sizes.head_size, heads, tokens, sizes.packed != 0 ? 1 : sizes.batches, rows);
    };
    if (sizes.batches == 0) return;
    if (sizes.queries > 0) {
      args.q = map(sizes.q, sizes.q_heads, sizes.queries, kGradientWgmmaQueries);
      args.grad_out = map(sizes.grad_out, sizes.q_heads, sizes.queries, kGradientWgmmaQueries);
    }
    if (sizes.keys > 0) {
      args.k = map(sizes.k, sizes.kv_heads, sizes.keys, gradient_wgmma_keys(padded_));
      args.v = map(sizes.v, sizes.kv_heads, sizes.keys, gradient_wgmma_keys(padded_));
      args.grad_k = map(sizes.grad_k, sizes.kv_heads, sizes.keys, kWgmmaWarpgroupRows);
      args.grad_v = map(sizes.grad_v, sizes.kv_heads, sizes.keys, kWgmmaWarpgroupRows);
    }
  }

  sdk::Dtype dtype_;
  bool has_options_ = false;
  int padded_ = 0;  // head size
  FunctionHandle terms_ = nullptr, blocks_ = nullptr, rows_ = nullptr;
  FunctionHandle plan_ = nullptr;  // of packed sequences
};

}  // namespace

sdk::Support AttentionBackwardWgmma::query(Device& device, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto refused = refuse_gradients<Op>(device, call)) return *refused;
  if (auto refused = refuse_other_than_hopper(device)) return *refused;
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  if (auto refused = refuse_head_size(call.D, kGradientWgmmaMostHead)) return *refused;
  if (auto refused = refuse_tensors({{call.q, "q"},
                                     {call.k, "k"},
                                     {call.v, "v"},
                                     {call.out, "out"},
                                     {call.grad_out, "grad_out"},
                                     {call.grad_q, "grad_q"},
                                     {call.grad_k, "grad_k"},
                                     {call.grad_v, "grad_v"}},
                                    kGradientTensors)) {
    return *refused;
  }
  if (auto refused = refuse_workspace(call)) return *refused;
  if (auto refused = has_options(call) ? refuse_without(kOptionsImage, "12.3") : refuse_without(kImage))
    return *refused;
  sdk::Support answer = sdk::Support::yes(kName, kNumerics, RLK_SUPPORT_PREFERRED);
  const Layout layout(call);
  answer.workspace_bound = layout.total();
  // Five products of whole panels, of heads above 128 two of them twice, measured against the rate of mma.sync
  // instructions. Between them a softcap bends every score: on an H200 2 sequences of 4096, causal, with heads of 128
  // took 1871 us with one and 1791 us without.
  const bool halved = call.params.causal != decltype(call.params.causal)::off;
  const double operations =
      (layout.padded > 128 ? 14.0 : 10.0) * gradient_pairs<Op>(call) * layout.padded * (halved ? 0.5 : 1.0);
  const double idle = idle_factor(device, static_cast<double>(key_tiles(call) * call.Hkv));
  // Heads of 64 have half of the products behind as many exponentials: 8 sequences of 2048 took 986 us, one of 16384
  // 6160. The loop that options keep, which does not begin the products of the next tile, took 1048 and 6614.
  const double narrow = has_options(call) ? 1.24 : 1.16;
  const double work = (call.params.softcap != 0 ? 0.68 : 0.65) * (layout.padded == 64 ? narrow : 1.0);
  answer.cost_us = (layout.packed ? 5 : 4) * kLaunchUs + idle * device.matrix_us(work * operations) +
                   device.bytes_us(2.0 * static_cast<double>(layout.sums()));
  return answer;
}
std::unique_ptr<sdk::Plan> AttentionBackwardWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionBackwardWgmmaPlan>(device, call);
}

}  // namespace rlk::cuda
