// paged_attention: how many blocks share the keys of a row, and how caches become kernel arguments.
#include "paged_attention.hpp"

#include "../skeleton/map.h"
#include "attention.hpp"

namespace rlk::simt::host {
namespace {

using Op = sdk::ops::PagedAttention;
using Arguments = sdk::Arguments<Op>;

constexpr uint32_t kSplitNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;
constexpr uint32_t kWholeNumerics = kSplitNumerics | RLK_NUMERICS_BATCH_INVARIANT;

int64_t tiles_of(const Arguments& call) {
  return paged_tiles(call, simt::paged_rows(sdk::bytes_of(sdk::dtype_of(*call.q))));
}

// As many as there are blocks in flight at once. How many keys there are is on the device; the fewest that a share is
// made for are few, so that small cases take the way of large ones.
int64_t splits_of(const Arguments& call, int64_t multiprocessors) {
  constexpr int64_t kBlocksOfMultiprocessor = 3, kFewestKeys = 8;
  const int64_t blocks = std::max<int64_t>(tiles_of(call) * call.Hkv, 1);
  const int64_t most = std::min<int64_t>(call.MB * call.BS / kFewestKeys, simt::kPagedMaxSplits);
  return std::max<int64_t>(std::min(multiprocessors * kBlocksOfMultiprocessor / blocks, most), 1);
}

uint64_t part_bytes(const Arguments& call, int64_t splits) {
  const int64_t rows = splits * call.Tq * call.Hq;
  return static_cast<uint64_t>(rows * accumulator_bytes(sdk::dtype_of(*call.q)));
}

// Places and blocks are 32-bit in the kernels.
const char* beyond_sizes(const Arguments& call) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const bool is_large = call.NB > kMost || call.Tq > kMost || (call.MB > 0 && call.BS > kMost / call.MB);
  return is_large ? "the kernels count keys of a sequence, blocks and queries up to 2^30" : nullptr;
}

simt::PagedCache cache_of(const rlk_tensor& tensor, bool is_token_major, int64_t head_size) {
  simt::PagedCache cache{};
  const int64_t* const stride = tensor.strides;
  cache.data = sdk::data_of(&tensor);
  cache.block_stride = stride[0];
  cache.group = head_size;
  if (is_token_major) {
    cache.place_stride = stride[1];
    cache.head_stride = stride[2];
    cache.element_stride = stride[3];
  } else if (tensor.ndim == 5) {  // keys: [block, head, group, place, element]
    cache.head_stride = stride[1];
    cache.group_stride = stride[2];
    cache.place_stride = stride[3];
    cache.element_stride = stride[4];
    cache.group = tensor.shape[4];
  } else {  // values: [block, head, element, place]
    cache.head_stride = stride[1];
    cache.element_stride = stride[2];
    cache.place_stride = stride[3];
  }
  const int64_t pack = 16 / sdk::bytes_of(sdk::dtype_of(tensor));
  const bool is_whole = cache.element_stride == 1 && cache.group % pack == 0 && is_aligned(cache.data, 0);
  const int64_t steps[] = {cache.block_stride, cache.place_stride, cache.head_stride, cache.group_stride};
  cache.in_packs =
      is_whole && std::all_of(std::begin(steps), std::end(steps), [pack](int64_t step) { return step % pack == 0; })
          ? 1
          : 0;
  return cache;
}

}  // namespace

int64_t paged_tiles(const Arguments& call, int64_t rows) {
  const int64_t group = call.Hq / call.Hkv;
  if (call.cu_seqlens_q == nullptr) return call.B * ceil_divide(group, rows);
  return call.Tq * group / rows + call.B;
}

uint64_t paged_workspace(const Arguments& call, int64_t splits) {
  if (splits == 1) return 0;
  const uint64_t numbers = part_bytes(call, splits);
  return align_256(numbers * static_cast<uint64_t>(call.D)) + align_256(numbers * 2);
}

void place_paged_parts(simt::PagedAttentionArgs& args, const Arguments& call, void* workspace) {
  if (args.splits == 1) return;
  const uint64_t numbers = part_bytes(call, args.splits);
  Workspace parts(workspace);
  args.parts = parts.take<void>(numbers * static_cast<uint64_t>(call.D));
  args.part_sums = parts.take<void>(numbers * 2);
}

void expect_paged_sizes(const Arguments& call) {
  if (const char* why = beyond_sizes(call)) throw sdk::Error(RLK_UNSUPPORTED, why);
}

simt::PagedAttentionArgs paged_arguments(const Arguments& call) {
  simt::PagedAttentionArgs args{};
  const bool is_token_major = call.params.layout == decltype(call.params.layout)::token_major;
  args.q = sdk::data_of(call.q);
  args.out = sdk::data_of(call.out);
  args.k = cache_of(*call.key_cache, is_token_major, call.D);
  args.v = cache_of(*call.value_cache, is_token_major, call.D);
  args.block_table = sdk::data_of(call.block_table);
  args.context_lens = sdk::data_of(call.context_lens);
  std::copy_n(call.q->strides, 2, args.q_stride);
  std::copy_n(call.out->strides, 2, args.out_stride);
  std::copy_n(call.block_table->strides, 2, args.table_stride);
  args.lens_stride = call.context_lens->strides[0];
  if (call.lse != nullptr) {
    args.lse = sdk::data_of(call.lse);
    std::copy_n(call.lse->strides, 2, args.lse_stride);
  }
  if (call.cu_seqlens_q != nullptr) {
    args.cu_q = sdk::data_of(call.cu_seqlens_q);
    args.cu_stride = call.cu_seqlens_q->strides[0];
  }
  args.indices_are_i64 = sdk::dtype_of(*call.block_table) == sdk::Dtype::i64 ? 1 : 0;
  args.sequences = call.B;
  args.queries = call.Tq;
  args.cache_blocks = call.NB;
  args.table_blocks = call.MB;
  args.block_size = call.BS;
  args.block_multiplier = simt::map_multiplier(call.BS);
  args.block_shift = simt::map_shift(call.BS);
  args.lanes = simt::paged_lanes(call.D);
  set_heads_and_scores(args, call);
  return args;
}

namespace {

class PagedAttentionPlan final : public OperatorPlan<Op> {
public:
  // multiprocessors: to share keys out to; 0: none are shared.
  PagedAttentionPlan(Device& device, const sdk::Call<Op>& call, int64_t multiprocessors)
      : OperatorPlan(device, call), multiprocessors_(multiprocessors) {
    const std::string dtype = sdk::name_of(sdk::dtype_of(*sdk::arguments_of(call).q));
    packs_ = device.kernel("paged_attention", "paged_attention_packs_" + dtype);
    any_ = device.kernel("paged_attention", "paged_attention_any_" + dtype);
    merge_ = device.kernel("paged_attention", "paged_attention_merge_" + dtype);
    dynamic_symbols = (uint64_t{1} << Op::kSymbols) - 1;
    workspace_bound = multiprocessors > 0 ? UINT64_MAX : 0;
  }

  uint64_t prepare(const sdk::Run& run) override {
    const Arguments call = arguments_of(run);
    return paged_workspace(call, splits_of(call, multiprocessors_));
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const Arguments call = arguments_of(run);
    expect_paged_sizes(call);
    simt::PagedAttentionArgs args = paged_arguments(call);
    const int64_t splits = splits_of(call, multiprocessors_);
    args.splits = static_cast<int32_t>(splits);
    args.errors = error_sink(run);
    place_paged_parts(args, call, run.workspace());
    args.tiles = std::max<int64_t>(tiles_of(call), call.cu_seqlens_q != nullptr ? 1 : 0);
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    const bool in_packs = args.k.in_packs != 0 && args.v.in_packs != 0;
    host::launch(in_packs ? packs_ : any_, args.tiles * splits * call.Hkv, simt::kPagedThreads, 0, handle, args);
    if (splits > 1) launch_walking(merge_, call.Tq * call.Hq, simt::kPagedThreads, 0, handle, args);
  }

private:
  const int64_t multiprocessors_;
  FunctionHandle packs_ = nullptr, any_ = nullptr, merge_ = nullptr;
};

}  // namespace

sdk::Refusal refuse_paged_attention(const Device& device, const sdk::Call<Op>& described) {
  if (auto refused = device.refusal()) return refused;
  const Arguments call = sdk::arguments_of(described);
  if (auto refused = refuse_scores(call.params.scale, call.params.softcap, sdk::dtype_of(*call.q))) return refused;
  if (auto refused = refuse_strided_heads({{call.q, "q"}, {call.out, "out"}})) return refused;
  if (const char* why = beyond_sizes(call)) return sdk::Support::no("SIZE", why);
  return std::nullopt;
}

namespace {

sdk::Support support_of(Device& device, const sdk::Call<Op>& described, const char* name, uint32_t numerics,
                        int64_t multiprocessors) {
  if (auto refused = refuse_paged_attention(device, described)) return *refused;
  const Arguments call = sdk::arguments_of(described);
  if (auto refused = refuse_dtype(call.q, "q")) return *refused;
  const sdk::Dtype dtype = sdk::dtype_of(*call.q);
  sdk::Support answer = sdk::Support::yes(name, numerics, RLK_SUPPORT_OK);
  const int64_t splits = splits_of(call, multiprocessors);
  answer.workspace_bound = multiprocessors > 0 ? UINT64_MAX : 0;
  // What sequences hold is on the device: half of what their tables could name. A block alone reads at the rate of a
  // part of one multiprocessor.
  const double keys = 0.5 * static_cast<double>(call.MB * call.BS);
  const double queries =
      std::max(1.0, static_cast<double>(call.Tq) / static_cast<double>(std::max<int64_t>(call.B, 1)));
  const double head = static_cast<double>(call.D) * keys * static_cast<double>(call.B);
  const double bytes = 2.0 * head * static_cast<double>(call.Hkv * sdk::bytes_of(dtype));
  const double busy =
      static_cast<double>(tiles_of(call) * call.Hkv * splits) / (3.0 * static_cast<double>(device.multiprocessors()));
  answer.cost_us =
      (splits > 1 ? 2 : 1) * kLaunchUs + device.bytes_us(bytes) / std::clamp(busy, 1e-3, 1.0) +
      device.matrix_us(slower_than_matrix_units(dtype) * 4.0 * head * queries * static_cast<double>(call.Hq));
  return answer;
}

}  // namespace

sdk::Support PagedAttentionSplit::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kName, kSplitNumerics, device.multiprocessors());
}
std::unique_ptr<sdk::Plan> PagedAttentionSplit::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<PagedAttentionPlan>(device, call, device.multiprocessors());
}

sdk::Support PagedAttentionWhole::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kName, kWholeNumerics, 0);
}
std::unique_ptr<sdk::Plan> PagedAttentionWhole::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<PagedAttentionPlan>(device, call, 0);
}

}  // namespace rlk::simt::host
