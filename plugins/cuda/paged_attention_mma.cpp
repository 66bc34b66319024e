// paged_attention on tensor cores (kernels/paged_attention_mma.cuh): which caches the kernels read, which kernel rows
// take, how keys are shared out.
#include "paged_attention_mma.hpp"

#include "attention_mma.hpp"
#include "attention_parts_mma.hpp"
#include "kernels/attention_parts.h"

namespace rlk::cuda {
namespace {

using namespace simt::host;
using Op = sdk::ops::PagedAttention;
using Arguments = sdk::Arguments<Op>;

constexpr const char* kImage = "paged_attention_mma";
constexpr int64_t kMostHead = 128, kManyRows = 64;
// Of parts. Where they do not fit in one piece they lie tile by tile, and a launch has as many tiles as fit.
constexpr uint64_t kPartBytes = uint64_t{256} << 20;
constexpr int64_t kMostFixedKeys = fixed_share_begin(simt::kPagedMaxSplits);

struct Form {
  const char* name;  // of the implementation
  uint32_t numerics;
  bool is_fixed;
};
constexpr Form kSplit{PagedAttentionMmaSplit::kName, kAttentionNumerics & ~RLK_NUMERICS_BATCH_INVARIANT, false};
constexpr Form kFixed{PagedAttentionMmaFixed::kName, kAttentionNumerics, true};

bool is_head_major(const Arguments& call) {
  return call.params.layout != decltype(call.params.layout)::token_major;
}
int padded(const Arguments& call) {
  return call.D <= 64 ? 64 : 128;
}
int shared_bytes(const Arguments& call, int64_t rows) {
  return parts_shared_bytes(padded(call), static_cast<int>(rows));
}

int64_t fixed_shares(int64_t keys) {
  int64_t shares = 1;
  while (shares < simt::kPagedMaxSplits && fixed_share_begin(shares) < keys) ++shares;
  return shares;
}

// How a call is cut.
struct Cut {
  int64_t rows, tiles, splits;  // rows of a block; tiles of rows
  int64_t launch_tiles;         // of one launch
  bool by_tiles = false;        // how parts lie
  uint64_t value_bytes = 0, sum_bytes = 0;

  Cut(const Arguments& call, const Form& form, int64_t multiprocessors) {
    // What sequences have is on the device: all have as many.
    const int64_t of_sequence = call.B == 0 ? 0 : ceil_divide(call.Tq, call.B) * (call.Hq / call.Hkv);
    rows = form.is_fixed || of_sequence <= kPartsFewRows ? kPartsFewRows : kManyRows;
    tiles = paged_tiles(call, rows);
    const int64_t keys = call.MB * call.BS;
    splits = form.is_fixed ? fixed_shares(keys)
                           : shares_of_keys(keys, std::max<int64_t>(tiles * call.Hkv, 1),
                                            multiprocessors * kPartsBlocks, simt::kPagedMaxSplits);
    launch_tiles = tiles = std::max<int64_t>(tiles, call.cu_seqlens_q != nullptr ? 1 : 0);
    if (splits == 1) return;
    const auto count = [&](int64_t part_rows) {
      const uint64_t numbers = sizeof(float) * static_cast<uint64_t>(splits * part_rows);  // one of each part
      value_bytes = align_256(numbers * static_cast<uint64_t>(call.D));
      sum_bytes = align_256(numbers * 2);
    };
    count(call.Tq * call.Hq);
    // Prefill over fixed shares is what has so many, and always takes this way. Small heads do, too, which are cheap to
    // try: a step of decoding is faster with parts in one piece.
    by_tiles = workspace() > kPartBytes || (form.is_fixed && (call.Tq > call.B || call.D < 64));
    if (!by_tiles) return;
    count(rows * call.Hkv);
    launch_tiles = std::min<int64_t>(tiles, std::max<int64_t>(kPartBytes / workspace(), 1));
    count(launch_tiles * rows * call.Hkv);
  }
  // Whether three blocks of a multiprocessor are faster than two: on an H200 where many have a turn each (256 sequences
  // of 1024 keys 264 us against 279, 64 of 4096 in 4 fixed shares 275 against 290), not where a turn is all.
  bool is_dense(int64_t kv_heads, int64_t multiprocessors) const {
    return tiles * kv_heads * splits > 3 * multiprocessors * kPartsBlocks;
  }
  uint64_t workspace() const { return value_bytes + sum_bytes; }
};

// The last element that kernels count from a cache's first, which grows with NB.
int64_t reach_of(const rlk_tensor& cache) {
  int64_t reach = 0;
  for (int32_t d = 0; d < cache.ndim; ++d) reach += (cache.shape[d] - 1) * cache.strides[d];
  return reach;
}
// What the kernels and the merge cannot count, or nothing.
sdk::Refusal refuse_far(const Arguments& call, const Form& form) {
  const int64_t keys = call.MB * call.BS;
  if (form.is_fixed && keys > kMostFixedKeys) {
    return sdk::Support::no("SIZE", sdk::format("sequences of up to %lld keys; fixed shares end at %lld",
                                                static_cast<long long>(keys), static_cast<long long>(kMostFixedKeys)));
  }
  if (std::max(reach_of(*call.key_cache), reach_of(*call.value_cache)) / 8 < UINT32_MAX) return std::nullopt;
  return sdk::Support::no("SIZE", "a cache spans more than 2^36 bytes");
}

class PagedAttentionMmaPlan final : public OperatorPlan<Op> {
public:
  PagedAttentionMmaPlan(Device& device, const sdk::Call<Op>& described, const Form& form)
      : OperatorPlan(device, described), form_(form), multiprocessors_(device.multiprocessors()) {
    const Arguments call = sdk::arguments_of(described);
    const char* const dtype = sdk::name_of(sdk::dtype_of(*call.q));
    const auto kernel_of = [&](int64_t rows, const char* suffix) {
      return device.kernel(
          kImage, sdk::format("%s_%s_%d_%lld%s", kImage, dtype, padded(call), static_cast<long long>(rows), suffix),
          shared_bytes(call, rows));
    };
    const char* const suffix = is_head_major(call) ? "_groups" : "";
    few_ = dense_ = kernel_of(kPartsFewRows, suffix);
    if (!is_head_major(call)) dense_ = kernel_of(kPartsFewRows, "_dense");  // else its registers do not fit
    if (!form_.is_fixed) many_ = kernel_of(kManyRows, suffix);
    merge_ = device.kernel("paged_attention", sdk::format("paged_attention_merge_%s", dtype));
    tile_merge_ = device.kernel(kImage, sdk::format("%s_tile_merge_%s", kImage, dtype));
    dynamic_symbols = sdk::bits_of(&Arguments::B, &Arguments::Tq, &Arguments::NB, &Arguments::MB);
    workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override { return Cut(arguments_of(run), form_, multiprocessors_).workspace(); }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const Arguments call = arguments_of(run);
    expect_paged_sizes(call);
    if (auto refused = refuse_far(call, form_)) throw sdk::Error(RLK_UNSUPPORTED, refused->reason);
    simt::PagedAttentionArgs args = paged_arguments(call);
    const Cut cut(call, form_, multiprocessors_);
    args.splits = static_cast<int32_t>(cut.splits);
    args.fixed_shares = form_.is_fixed ? 1 : 0;
    args.errors = error_sink(run);
    Workspace workspace(run.workspace());
    args.parts = workspace.take<void>(cut.value_bytes);
    args.part_sums = workspace.take<void>(cut.sum_bytes);
    args.tiles = cut.tiles;
    args.tile_rows = cut.by_tiles ? cut.rows : 0;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    const FunctionHandle kernel = cut.rows != kPartsFewRows                  ? many_
                                  : cut.is_dense(call.Hkv, multiprocessors_) ? dense_
                                                                             : few_;
    for (args.first_tile = 0; args.first_tile < cut.tiles; args.first_tile += cut.launch_tiles) {
      args.part_tiles = std::min(cut.launch_tiles, cut.tiles - args.first_tile);
      const int64_t items = args.part_tiles * call.Hkv;
      launch(kernel, items * cut.splits, simt::kPagedThreads, shared_bytes(call, cut.rows), handle, args);
      if (cut.by_tiles) launch(tile_merge_, items, simt::kPagedThreads, 0, handle, args);
    }
    if (cut.splits > 1 && !cut.by_tiles) {
      launch_walking(merge_, call.Tq * call.Hq, simt::kPagedThreads, 0, handle, args);
    }
  }

private:
  const Form form_;
  const int64_t multiprocessors_;
  FunctionHandle few_ = nullptr, dense_ = nullptr, many_ = nullptr, merge_ = nullptr, tile_merge_ = nullptr;
};

// Why 16-byte accesses cannot fetch this cache, or nothing.
sdk::Refusal refuse_cache(const rlk_tensor& tensor, const char* name) {
  const int32_t contiguous = tensor.ndim - 1;
  bool is_ok = tensor.alignment % 16 == 0 && tensor.strides[contiguous] == 1;
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    if (d != contiguous) is_ok = is_ok && tensor.strides[d] % 8 == 0 && tensor.strides[d] >= 0;
  }
  if (is_ok) return std::nullopt;
  return sdk::Support::no("ALIGNMENT",
                          sdk::format("%s must start on 16 bytes, with strides of multiples of 8 but that of its last "
                                      "dimension, which is 1",
                                      name));
}

sdk::Support support_of(Device& device, const sdk::Call<Op>& described, const Form& form) {
  if (auto refused = refuse_paged_attention(device, described)) return *refused;
  const Arguments call = sdk::arguments_of(described);
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  if (auto refused = refuse_head_size(call.D, kMostHead)) return *refused;
  if (is_head_major(call) && (call.BS % 8 != 0 || call.X % 8 != 0 || (call.X & (call.X - 1)) != 0)) {
    return sdk::Support::no("LAYOUT",
                            sdk::format("blocks of %lld tokens with %lld neighbouring elements of a key; in head_major "
                                        "these kernels take multiples of 8 and powers of 2 from 8 on",
                                        static_cast<long long>(call.BS), static_cast<long long>(call.X)));
  }
  if (auto refused = refuse_cache(*call.key_cache, "key_cache")) return *refused;
  if (auto refused = refuse_cache(*call.value_cache, "value_cache")) return *refused;
  if (!is_wide(*call.q) || !is_wide(*call.out)) {
    return sdk::Support::no("ALIGNMENT", "q and out must start on 16 bytes, with strides of multiples of 8");
  }
  const int shared = shared_bytes(call, form.is_fixed ? int64_t{kPartsFewRows} : kManyRows);
  if (auto refused = refuse_shared_memory(call.D, shared, device.shared_limit())) return *refused;
  if (auto refused = refuse_far(call, form)) return *refused;
  sdk::Support answer = sdk::Support::yes(form.name, form.numerics, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = UINT64_MAX;
  // What sequences hold is on the device: half of what their tables could name.
  const Cut cut(call, form, device.multiprocessors());
  const double head = 0.5 * static_cast<double>(call.MB * call.BS) * static_cast<double>(call.D);
  const double of_sequences = static_cast<double>(std::max<int64_t>(call.B, 1));
  const double blocks = static_cast<double>(cut.tiles * call.Hkv * cut.splits);
  const double busy = blocks / (2.0 * static_cast<double>(device.multiprocessors()));
  const double bytes = 4.0 * head * of_sequences * static_cast<double>(call.Hkv) +
                       2.0 * static_cast<double>(paged_workspace(call, cut.splits));
  const double rows = static_cast<double>(cut.tiles * cut.rows) / of_sequences;  // of a sequence, padded
  const double operations = 4.0 * head * rows * of_sequences * static_cast<double>(call.Hkv);
  // Blocks of few rows wait for keys more often than for products.
  const double work = cut.rows == kPartsFewRows ? 3.0 : 1.5;
  // Fixed shares begin and end more often: on an H200 they took up to 1.15 times as long.
  const double pace = form.is_fixed ? 1.1 : 1.0;
  answer.cost_us =
      (cut.splits > 1 ? 2 : 1) * kLaunchUs +
      pace * std::max(device.bytes_us(bytes), device.matrix_us(work * operations)) / std::clamp(busy, 1e-3, 1.0);
  return answer;
}

}  // namespace

sdk::Support PagedAttentionMmaSplit::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kSplit);
}
std::unique_ptr<sdk::Plan> PagedAttentionMmaSplit::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<PagedAttentionMmaPlan>(device, call, kSplit);
}

sdk::Support PagedAttentionMmaFixed::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kFixed);
}
std::unique_ptr<sdk::Plan> PagedAttentionMmaFixed::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<PagedAttentionMmaPlan>(device, call, kFixed);
}

}  // namespace rlk::cuda
