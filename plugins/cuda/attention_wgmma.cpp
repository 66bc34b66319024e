// attention on warpgroup products (kernels/attention_wgmma.cuh): 16-bit tensors of sm_90.
#include "attention_wgmma.hpp"

#include "hopper.hpp"

namespace rlk::cuda {
namespace {

using namespace simt::host;

using Op = sdk::ops::Attention;

constexpr const char* kImage = "attention_wgmma";
constexpr const char* kOptionsImage = "attention_options_wgmma";  // packed sequences and softcaps
constexpr const char* kMaskImage = "attention_mask_wgmma";
constexpr const char* kAccurateImage = "attention_accurate_wgmma";

// One accuracy of the kernels.
struct Form {
  const char* name;  // of the implementation
  uint32_t numerics;
  bool is_accurate;
  double matrix_work;  // in products of queries and keys, and weights and values
};
constexpr Form kRounded{AttentionWgmma::kName, kAttentionNumerics & ~RLK_NUMERICS_ACCURATE, false, 1.0};
constexpr Form kAccurate{AttentionWgmmaAccurate::kName, kAttentionNumerics, true, 1.5};

const char* image_for(const sdk::Call<Op>& described, const Form& form) {
  if (form.is_accurate) return kAccurateImage;
  const auto call = sdk::arguments_of(described);
  if (call.key_mask != nullptr) return kMaskImage;
  return attention_sizes(described).packed || call.params.softcap != 0 ? kOptionsImage : kImage;
}

WgmmaTiles tiles_for(const sdk::Call<Op>& described, const Form& form) {
  const int padded = wgmma_padded(attention_sizes(described).head);
  if (form.is_accurate) return wgmma_accurate_tiles(padded);
  return padded == 64 && image_for(described, form) == kImage ? kWgmmaNarrowTiles : wgmma_tiles(padded);
}

// Tiles of queries of one head; when packed a bound, since every sequence may have a short one.
int64_t query_tiles(const AttentionSizes& sizes, int rows) {
  const int64_t tiles = ceil_divide(sizes.queries, rows);
  return sizes.packed ? tiles + sizes.sequences : tiles * sizes.sequences;
}

// Of packed sequences: the plan, the maps, the counter of tiles.
uint64_t maps_bytes(int64_t sequences) {
  return static_cast<uint64_t>(sequences) * kWgmmaSequenceMaps * sizeof(SequenceMap);
}
uint64_t workspace_of(const AttentionSizes& sizes) {
  if (!sizes.packed) return 0;
  return align_256(attention_workspace(sizes)) + align_256(maps_bytes(sizes.sequences)) + align_256(sizeof(int32_t));
}

WgmmaSoftcap softcap_of(double inner) {
  inner = std::max(inner, 0x1p-120);  // which bends no score of fp32, and has an inverse
  WgmmaSoftcap softcap{};
  softcap.inner = static_cast<float>(inner);
  softcap.inverse = static_cast<float>(1.0 / inner);
  // Elsewhere the factors would leave the range of fp32, and all products take the long way.
  softcap.most = inner >= 0x1p-14 && inner <= 8 ? static_cast<float>(0.5 / inner) : -1.0f;
  constexpr float kFactors[] = {kTanh0, kTanh1, kTanh2, kTanh3};
  double power = 1.0;
  for (int i = 0; i < 4; ++i) {
    power *= inner * inner;
    softcap.factors[i] = static_cast<float>(kFactors[i] * power);
  }
  return softcap;
}

class AttentionWgmmaPlan final : public AttentionPlan {
public:
  AttentionWgmmaPlan(Device& device, const sdk::Call<Op>& call, const Form& form)
      : AttentionPlan(device, call),
        multiprocessors_(device.multiprocessors()),
        dtype_(sdk::dtype_of(*sdk::arguments_of(call).q)),
        tiles_(tiles_for(call, form)) {
    const char* const image = image_for(call, form);
    has_options_ = image == kOptionsImage || image == kMaskImage;
    kernel_ = device.kernel(
        image, sdk::format("%s_%s_%d%s", image, sdk::name_of(dtype_), tiles_.head, params_.softcap != 0 ? "_cap" : ""),
        tiles_.shared_bytes());
    if (attention_sizes(call).packed) plan_ = device.kernel(kOptionsImage, "attention_options_wgmma_plan");
  }

  uint64_t prepare(const sdk::Run& run) override {
    const auto call = arguments_of(run);
    return workspace_of({call.B, call.Tq, call.Tk, call.Hq, call.Hkv, call.D, plan_ != nullptr});
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const simt::AttentionArgs sizes = arguments(run);
    expect_near(sizes.queries, sizes.keys);
    const PlaceScope scope(place_);  // the driver makes tensor maps of a current context
    AttentionOptionsWgmmaArgs args{};
    set_maps(args, sizes);
    args.lse = static_cast<float*>(sizes.lse);
    args.sequences = static_cast<int32_t>(sizes.sequences);
    args.queries = static_cast<int32_t>(sizes.queries);
    args.keys = static_cast<int32_t>(sizes.keys);
    args.q_heads = sizes.q_heads;
    args.kv_heads = sizes.kv_heads;
    args.diagonal = sizes.top_left != 0 ? 0 : args.keys - args.queries;
    args.window_left = near_bound(sizes.window_left);
    args.window_right = near_bound(sizes.window_right);
    args.scale = static_cast<float>(sizes.scale * kLog2e);
    if (sizes.softcap > 0) args.softcap = softcap_of(sizes.scale / sizes.softcap);
    args.call = sizes;
    args.call.group = 1;
    args.call.block_rows = tiles_.rows();

    const StreamHandle handle = own(stream).handle();
    if (plan_ != nullptr) {
      Workspace workspace(run.workspace());
      args.call.plan = workspace.take<int64_t>(attention_workspace({sizes.sequences, 0, 0, 0, 0, 0, true}));
      args.maps = workspace.take<SequenceMap>(maps_bytes(sizes.sequences));
      args.taken = workspace.take<int32_t>(sizeof(int32_t));
      launch_grid(plan_, 1, simt::kPlanThreads, 0, handle, args);
    }
    const AttentionSizes all{sizes.sequences, sizes.queries, 0, 0, 0, 0, plan_ != nullptr};
    const int64_t blocks = query_tiles(all, tiles_.rows()) * sizes.q_heads;
    if (sizes.queries == 0 || blocks == 0) return;
    const auto run_blocks = [&](const auto& arguments) {
      launch_grid(kernel_, std::min(blocks, multiprocessors_), tiles_.threads(), tiles_.shared_bytes(), handle,
                  arguments);
    };
    if (has_options_) {
      run_blocks(args);
    } else {
      run_blocks(static_cast<const AttentionWgmmaArgs&>(args));
    }
  }

private:
  // Of packed sequences, which lie behind each other like the tokens of one, they are what each one's are made of.
  void set_maps(AttentionWgmmaArgs& args, const simt::AttentionArgs& sizes) const {
    const auto map = [&](const simt::AttentionTensor& tensor, int64_t heads, int64_t tokens, int rows) {
      return tensor_map(tensor, dtype_, sizes.head_size, heads, tokens, plan_ != nullptr ? 1 : sizes.sequences, rows);
    };
    if (sizes.queries == 0 || sizes.sequences == 0) return;
    args.q = map(sizes.q, sizes.q_heads, sizes.queries, tiles_.rows());
    if (sizes.keys > 0) {  // else no tile is read
      args.k = map(sizes.k, sizes.kv_heads, sizes.keys, tiles_.keys);
      args.v = map(sizes.v, sizes.kv_heads, sizes.keys, tiles_.keys);
    }
    args.out = map(sizes.out, sizes.q_heads, sizes.queries, kWgmmaWarpgroupRows);
  }

  int64_t multiprocessors_;
  sdk::Dtype dtype_;
  WgmmaTiles tiles_;
  bool has_options_ = false;
  FunctionHandle kernel_ = nullptr;
  FunctionHandle plan_ = nullptr;  // of packed sequences
};

// Calls that the accurate kernels do not take.
sdk::Refusal refuse_options(const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (attention_sizes(described).packed) {
    return sdk::Support::no("LAYOUT", "the accurate kernels take no packed batch");
  }
  if (call.params.softcap != 0) return sdk::Support::no("SOFTCAP", "the accurate kernels have no softcap");
  if (call.key_mask != nullptr) return sdk::Support::no("KEY_MASK", "the accurate kernels have no key_mask");
  return std::nullopt;
}

sdk::Support support_of(Device& device, const sdk::Call<Op>& described, const Form& form) {
  if (auto refused = refuse_attention(device, described)) return *refused;
  if (auto refused = refuse_other_than_hopper(device)) return *refused;
  const auto call = sdk::arguments_of(described);
  const sdk::Dtype dtype = sdk::dtype_of(*call.q);
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  const AttentionSizes sizes = attention_sizes(described);
  if (auto refused = refuse_head_size(sizes.head, form.is_accurate ? kWgmmaMostAccurateHead : 256)) return *refused;
  if (form.is_accurate) {
    if (auto refused = refuse_options(described)) return *refused;
  }
  if (auto refused =
          refuse_tensors({{call.q, "q"}, {call.k, "k"}, {call.v, "v"}, {call.out, "out"}}, "q, k, v and out")) {
    return *refused;
  }
  const char* const image = image_for(described, form);
  if (auto refused = refuse_without(image, image == kOptionsImage || image == kMaskImage ? "12.3" : "12"))
    return *refused;
  sdk::Support answer = sdk::Support::yes(form.name, form.numerics, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = workspace_of(sizes);
  // Whole tiles of queries are computed.
  const int64_t all_queries = sizes.packed ? sizes.queries : sizes.queries * sizes.sequences;
  const int rows = tiles_for(described, form).rows();
  const double tiles = static_cast<double>(std::max<int64_t>(query_tiles(sizes, rows), 1));
  const double idle = idle_factor(device, tiles * static_cast<double>(sizes.q_heads));
  const double padding = tiles * rows / static_cast<double>(std::max<int64_t>(all_queries, 1));
  // Measured against the rate of mma.sync instructions. Between the products a softcap bends every score: on an H200 2
  // sequences of 4096, causal, with heads of 128 took 624 us with one and 551 us without.
  const double work = form.matrix_work * (call.params.softcap != 0 ? 0.62 : 0.55);
  answer.cost_us = kLaunchUs * (sizes.packed ? 2 : 1) +
                   idle * std::max(device.matrix_us(work * padding * attention_operations(described, sizes)),
                                   attention_bytes_us(device, sizes, dtype));
  return answer;
}

}  // namespace

sdk::Support AttentionWgmma::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kRounded);
}
std::unique_ptr<sdk::Plan> AttentionWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionWgmmaPlan>(device, call, kRounded);
}

sdk::Support AttentionWgmmaAccurate::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kAccurate);
}
std::unique_ptr<sdk::Plan> AttentionWgmmaAccurate::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionWgmmaPlan>(device, call, kAccurate);
}

}  // namespace rlk::cuda
