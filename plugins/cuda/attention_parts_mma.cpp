// attention in parts on tensor cores (kernels/attention_parts_mma.cuh): how keys are shared out, which kernels rows
// take.
#include "attention_parts_mma.hpp"

#include "../simt/host/attention_samples.hpp"
#include "attention_mma.hpp"
#include "kernels/attention_parts.h"

namespace rlk::cuda {
namespace {

using namespace simt::host;

constexpr int64_t kMostHead = 128, kTileKeys = 64;
constexpr int64_t kMostCount = int64_t{1} << 30;  // of queries of a sample, which the kernels count in 32 bits

struct Accuracy {
  const char* name;   // of the implementation
  const char* image;  // of its kernels, and what their names begin with
  uint32_t numerics;
  double matrix_work;  // in products of queries and keys, and weights and values
};
constexpr uint32_t kPartsNumerics = kAttentionNumerics & ~RLK_NUMERICS_BATCH_INVARIANT;
constexpr const char* kAccurateImage = "attention_parts_mma_accurate";
constexpr Accuracy kRounded{PrefixSharedAttentionMma::kName, "attention_parts_mma",
                            kPartsNumerics & ~RLK_NUMERICS_ACCURATE, 1.0};
constexpr Accuracy kAccurate{PrefixSharedAttentionMmaAccurate::kName, kAccurateImage, kPartsNumerics, 1.5};
constexpr Accuracy kSplit{AttentionSplit::kName, kAccurateImage, kPartsNumerics, 1.5};

template <class Op>
AttentionPartsArgs parts_of(const sdk::Arguments<Op>& call) {
  AttentionPartsArgs args{};
  if constexpr (std::is_same_v<Op, sdk::ops::PrefixSharedAttention>) {
    set_samples(args, call);
  } else {
    set_attention(args, call, kOfSequence);
  }
  return args;
}

// Of one launch: the rows that share its keys, and how their blocks are cut.
struct Share {
  int64_t sequences, rows, keys;
  int64_t block_rows, blocks, splits;

  Share(int64_t sequence_count, int64_t row_count, int64_t key_count, int64_t kv_heads, int64_t multiprocessors)
      : sequences(sequence_count), rows(row_count), keys(key_count) {
    // Blocks of 128 rows, 32 of a warp, were slower on an H200 with 256 rows of a key head and with 2048.
    block_rows = rows <= kPartsFewRows ? kPartsFewRows : 64;
    blocks = sequences * kv_heads * ceil_divide(rows, block_rows);
    splits = blocks == 0 || keys == 0 ? 0 : 1;
    if (splits == 0) return;
    splits = shares_of_keys(keys, blocks, multiprocessors * kPartsBlocks, kPartsMostSlots / 2);
  }
};

int padded(int64_t head) {
  return head <= 64 ? 64 : 128;
}

struct Shares {
  bool merges_own;  // own keys have no launch and no part
  Share prefix, own;
  int64_t rows, head;  // of all parts of a slot

  Shares(const AttentionPartsArgs& args, int64_t multiprocessors)
      : merges_own(args.prefix_keys > 0 && args.keys <= kPartsMergeKeys),
        prefix(args.batches, args.samples * args.queries * args.group, args.prefix_keys, args.kv_heads,
               multiprocessors),
        own(args.batches * args.samples, args.queries * args.group, merges_own ? 0 : args.keys, args.kv_heads,
            multiprocessors),
        rows(args.batches * args.samples * args.queries * args.q_heads),
        head(args.head_size) {}
  int64_t slots() const { return prefix.splits + own.splits; }
  uint64_t part_bytes() const { return static_cast<uint64_t>(slots() * rows * head) * sizeof(float); }
  uint64_t sum_bytes() const { return static_cast<uint64_t>(slots() * rows) * 2 * sizeof(float); }
  uint64_t bytes() const { return align_256(part_bytes()) + align_256(sum_bytes()); }
};

template <class Op>
class AttentionPartsPlan final : public OperatorPlan<Op> {
public:
  AttentionPartsPlan(Device& device, const sdk::Call<Op>& call, const Accuracy& accuracy)
      : OperatorPlan<Op>(device, call), multiprocessors_(device.multiprocessors()) {
    const rlk_tensor& q = *sdk::arguments_of(call).q;
    padded_ = padded(q.shape[q.ndim - 1]);
    const char* const dtype = sdk::name_of(sdk::dtype_of(q));
    const std::string of_rows = sdk::format("%s_%s_%d_", accuracy.image, dtype, padded_);
    few_ = device.kernel(kAccurateImage, sdk::format("%s_%s_%d_16", kAccurateImage, dtype, padded_), shared(16));
    many_ = device.kernel(accuracy.image, of_rows + "64_options", shared(64));
    merge_ = device.kernel(kAccurateImage, sdk::format("%s_merge_%s", kAccurateImage, dtype));
    this->dynamic_symbols = sample_symbols<Op>();
    this->workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override {
    return Shares(parts_of<Op>(this->arguments_of(run)), multiprocessors_).bytes();
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    AttentionPartsArgs args = parts_of<Op>(this->arguments_of(run));
    if (args.queries > kMostCount) throw sdk::Error(RLK_UNSUPPORTED, "the kernels count queries up to 2^30");
    const Shares shares(args, multiprocessors_);
    Workspace workspace(run.workspace());
    args.parts = workspace.take<float>(shares.part_bytes());
    args.sums = workspace.take<float>(shares.sum_bytes());
    args.slots = static_cast<int32_t>(shares.slots());
    args.merges_own = shares.merges_own ? 1 : 0;
    const PlaceScope scope(this->place_);
    const StreamHandle handle = own(stream).handle();
    args.of_prefix = 1;
    launch_parts(args, shares.prefix, handle);
    args.of_prefix = 0;
    args.first_slot = static_cast<int32_t>(shares.prefix.splits);
    launch_parts(args, shares.own, handle);
    if (shares.rows == 0) return;
    launch_walking(merge_, ceil_divide(shares.rows, kPartsMergeWarps), 32 * kPartsMergeWarps, 0, handle, args);
  }

private:
  int shared(int block_rows) const { return parts_shared_bytes(padded_, block_rows); }
  void launch_parts(AttentionPartsArgs& args, const Share& share, StreamHandle stream) const {
    if (share.splits == 0) return;
    args.splits = static_cast<int32_t>(share.splits);
    const FunctionHandle kernel = share.block_rows == kPartsFewRows ? few_ : many_;
    launch(kernel, share.blocks * share.splits, 128, shared(static_cast<int>(share.block_rows)), stream, args);
  }

  int64_t multiprocessors_;
  int padded_ = 0;
  FunctionHandle few_ = nullptr, many_ = nullptr, merge_ = nullptr;
};

template <class Op>
sdk::Support support_of(Device& device, const sdk::Call<Op>& described, const Accuracy& accuracy) {
  if (auto refused = device.refusal()) return *refused;
  const auto call = sdk::arguments_of(described);
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  if (auto refused = refuse_scores(call.params.scale, call.params.softcap, sdk::dtype_of(*call.q))) return *refused;
  if (auto refused = refuse_head_size(call.D, kMostHead, "the tensor core kernels in parts")) return *refused;
  const rlk_tensor *prefix_k = nullptr, *prefix_v = nullptr;
  if constexpr (std::is_same_v<Op, sdk::ops::PrefixSharedAttention>) {
    prefix_k = call.prefix_k;
    prefix_v = call.prefix_v;
  } else if (call.params.layout == sdk::ops::attention::Layout::packed) {
    return sdk::Support::no("LAYOUT", "a packed batch's sequences are not cut into parts");
  }
  if (auto refused = refuse_strided_heads({{call.q, "q"},
                                           {call.k, "k"},
                                           {call.v, "v"},
                                           {call.out, "out"},
                                           {prefix_k, "prefix_k"},
                                           {prefix_v, "prefix_v"}})) {
    return *refused;
  }
  if (auto refused = refuse_narrow({call.q, call.k, call.v, call.out, prefix_k, prefix_v}, "q, keys, values and out")) {
    return *refused;
  }
  const int shared = parts_shared_bytes(padded(call.D), 64);
  if (auto refused = refuse_shared_memory(call.D, shared, device.shared_limit())) return *refused;
  const AttentionPartsArgs args = parts_of<Op>(call);
  const Shares shares(args, device.multiprocessors());
  sdk::Support answer = sdk::Support::yes(accuracy.name, accuracy.numerics, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = shares.bytes();
  // Blocks multiply all their rows, whatever has them.
  const auto padded_rows = [](const Share& share) {
    return static_cast<double>(share.sequences * ceil_divide(share.rows, share.block_rows) * share.block_rows) *
           static_cast<double>(share.keys);
  };
  const bool halved = args.window_right == 0 && args.queries > 1 && args.prefix_keys == 0;
  const double operations = 4.0 * (padded_rows(shares.prefix) + padded_rows(shares.own)) *
                            static_cast<double>(args.kv_heads * args.head_size) * (halved ? 0.5 : 1.0);
  const double keys = static_cast<double>(args.batches) * static_cast<double>(args.prefix_keys) +
                      static_cast<double>(args.batches * args.samples) * static_cast<double>(args.keys);
  const double bytes = 4.0 * (keys * static_cast<double>(args.kv_heads) + static_cast<double>(shares.rows)) *
                           static_cast<double>(args.head_size) +
                       2.0 * static_cast<double>(shares.part_bytes());
  answer.cost_us =
      3 * kLaunchUs + std::max(device.matrix_us(accuracy.matrix_work * operations), device.bytes_us(bytes));
  return answer;
}

}  // namespace

int64_t shares_of_keys(int64_t keys, int64_t blocks, int64_t at_once, int64_t most) {
  // What a share of the keys costs beyond its keys, counted in keys: filling the pipeline, and its part's way through
  // memory.
  constexpr int64_t kShareKeys = 128;
  int64_t least = INT64_MAX, best = 1;
  for (int64_t shares = 1; shares <= std::min(ceil_divide(keys, kTileKeys), most); ++shares) {
    const int64_t steps = ceil_divide(blocks * shares, at_once) * (ceil_divide(keys, shares) + kShareKeys);
    if (steps >= least) continue;
    least = steps;
    best = shares;
  }
  return best;
}

sdk::Support AttentionSplit::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kSplit);
}
std::unique_ptr<sdk::Plan> AttentionSplit::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionPartsPlan<Op>>(device, call, kSplit);
}

sdk::Support PrefixSharedAttentionMma::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kRounded);
}
std::unique_ptr<sdk::Plan> PrefixSharedAttentionMma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionPartsPlan<Op>>(device, call, kRounded);
}

sdk::Support PrefixSharedAttentionMmaAccurate::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kAccurate);
}
std::unique_ptr<sdk::Plan> PrefixSharedAttentionMmaAccurate::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionPartsPlan<Op>>(device, call, kAccurate);
}

}  // namespace rlk::cuda
