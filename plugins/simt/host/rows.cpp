// Query, plan and launch of every operator of rows: how many threads have a row, and whether it goes in packs.
#include "rows.hpp"

#include "../skeleton/summed_rows.h"

#include <algorithm>

namespace rlk::simt::host {
namespace {

using Kind = RowsArgument::Kind;

// A sum over rows depends on how many there are.
uint32_t numerics_of(const RowsCall& call) {
  return RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | (call.keeps() ? 0u : RLK_NUMERICS_BATCH_INVARIANT);
}

// Of rows that stream through and are only reduced: threads of one of up to so many packs. More waves take less time
// for the packs, but each of them as much for the sums over threads and what is made of them.
constexpr int kFewThreads = 128;
constexpr int64_t kFewPacks = 8192;

// Of sums over rows: the fewer columns there are, the more chunks it takes to employ a device.
constexpr int64_t kFewestChunkRows = 16, kMostChunks = 1024, kMostWideChunks = 256, kChunkNumbers = int64_t{1} << 20;
// Of sums over rows as they are held: threads of all chunks. A multiple of what the H100 and its successors have at
// once, but the same everywhere, for sums depend on it.
constexpr int64_t kSummedThreads = int64_t{132} * 512;

int64_t product(const int64_t* shape, int32_t ndim) {
  int64_t size = 1;
  for (int32_t d = 0; d < ndim; ++d) size *= shape[d];
  return size;
}

// Along a dimension of one place nothing moves, whatever the stride says.
int64_t stride_of(const rlk_tensor& tensor, int32_t d) {
  return d < 0 || tensor.shape[d] == 1 ? 0 : tensor.strides[d];
}

int64_t packs_of(const RowsCall& call) {
  return ceil_divide(call.columns(), 16 / sdk::bytes_of(call.dtype()));
}

int64_t count_of(const RowsCall& call, Kind kind) {
  return std::count_if(call.arguments, call.arguments + call.count,
                       [=](const RowsArgument& one) { return one.kind == kind; });
}
int64_t sums_of(const RowsCall& call) {
  return count_of(call, Kind::of_column);
}
// Packs of a row that one thread keeps.
int held_by_thread(const RowsCall& call) {
  if (sums_of(call) > 0) return simt::row_held_for_sums(static_cast<int>(sdk::bytes_of(call.dtype())));
  const int64_t vectors = count_of(call, Kind::or_one) + count_of(call, Kind::or_zero);
  return simt::row_held(static_cast<int>(count_of(call, Kind::in)), static_cast<int>(vectors));
}
bool is_held(const RowsCall& call, const simt::RowArgs& args) {
  return int64_t{args.group} * held_by_thread(call) >= packs_of(call);
}

// dtype: of the matrices. Of what is narrower a pack is shorter.
simt::RowTensor row_tensor(const RowsArgument& argument, sdk::Dtype dtype) {
  simt::RowTensor out{};
  if (argument.tensor == nullptr) return out;
  const rlk_tensor& tensor = *argument.tensor;
  out.data = sdk::data_of(&tensor);
  out.dtype = static_cast<int32_t>(sdk::dtype_of(tensor));
  int32_t last = tensor.ndim - 1;
  if (argument.kind == Kind::of_call) return out;
  if (argument.kind == Kind::of_block) {
    out.outer = stride_of(tensor, last);
    return out;
  }
  if (argument.has_columns()) out.column = stride_of(tensor, last--);
  out.row = stride_of(tensor, last);
  out.outer = stride_of(tensor, last - 1);
  const int64_t bytes = sdk::bytes_of(argument.kind == Kind::narrow_out ? dtype : sdk::dtype_of(tensor));
  out.in_packs = out.column == 1 && is_aligned(out.data, out.row * bytes) && out.outer * bytes % 16 == 0 ? 1 : 0;
  return out;
}

}  // namespace

RowsCall::RowsCall(std::initializer_list<RowsArgument> all, std::initializer_list<double> parameters)
    : count(static_cast<int>(all.size())) {
  std::copy(all.begin(), all.end(), arguments);
  std::copy(parameters.begin(), parameters.end(), numbers);
}

const rlk_tensor& RowsCall::matrix() const {
  const RowsArgument* const found =
      std::find_if(arguments, arguments + count, [](const RowsArgument& one) { return one.is_read(); });
  if (found == arguments + count || found->tensor == nullptr) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, "a tensor that the operator needs is absent");
  }
  return *found->tensor;
}

bool RowsCall::has_sums() const noexcept {
  return std::any_of(arguments, arguments + count,
                     [](const RowsArgument& one) { return one.kind == Kind::of_column && one.tensor != nullptr; });
}

sdk::Support RowsPlan::support(const Device& device, const RowsCall& call) {
  if (auto refused = device.refusal()) return *refused;
  const sdk::Dtype dtype = call.dtype();
  if (call.asks_f64 && dtype != sdk::Dtype::f64) {
    return sdk::Support::no("PARAMETERS", "a parameter is beyond 2^-60 to 2^60, which the kernels' fp32 needs");
  }
  double bytes = 0;
  for (int i = 0; i < call.count; ++i) {
    const RowsArgument& argument = call.arguments[i];
    if (argument.tensor == nullptr) continue;
    const sdk::Dtype own = sdk::dtype_of(*argument.tensor);
    const bool is_integer = argument.is_integer();
    const sdk::Refusal refused =
        argument.is_id() ? sdk::refuse_dtype(argument.tensor, argument.name, {sdk::Dtype::i32, sdk::Dtype::i64})
        : is_integer
            ? sdk::refuse_dtype(argument.tensor, argument.name, {sdk::Dtype::i32, sdk::Dtype::i64, sdk::Dtype::u8})
            : refuse_dtype(argument.tensor, argument.name);
    if (refused) return *refused;
    const bool is_wide = sdk::bytes_of(own) == accumulator_bytes(dtype);
    const bool is_rounded = argument.kind == Kind::narrow_out && dtype == sdk::Dtype::f32 && own == sdk::Dtype::bf16;
    const bool fits =
        argument.kind == Kind::wide_out ? is_wide : own == dtype || is_rounded || (!argument.is_matrix() && is_wide);
    if (!fits && !is_integer && !argument.is_id() && argument.is_of_dtype()) {
      return sdk::Support::no(
          "DTYPE", std::string(argument.name) + " is " + sdk::name_of(own) + " beside rows of " + sdk::name_of(dtype));
    }
    if (argument.tensor->ndim > 3) {
      return sdk::Support::no("DIMENSIONS", std::string(argument.name) + " has more than three dimensions");
    }
    bytes += static_cast<double>(product(argument.tensor->shape, argument.tensor->ndim) * sdk::bytes_of(own));
  }
  sdk::Support answer = sdk::Support::yes("rows", numerics_of(call), RLK_SUPPORT_PREFERRED);
  answer.cost_us = (call.has_sums() ? 2 : 1) * (kLaunchUs + device.bytes_us(bytes));
  if (call.all_rows != RowsAll::never) answer.cost_us += (call.all_rows == RowsAll::around ? 2 : 1) * kLaunchUs;
  if (call.keeps()) answer.workspace_bound = UINT64_MAX;
  return answer;
}

simt::RowArgs arguments_of_rows(const RowsCall& call, int wave) {
  simt::RowArgs args{};
  const rlk_tensor& matrix = call.matrix();
  args.columns = call.columns();
  args.rows = product(matrix.shape, matrix.ndim - 1);
  args.inner = matrix.ndim == 3 ? matrix.shape[1] : args.rows;
  args.blocks = matrix.ndim == 3 ? matrix.shape[0] : 1;
  args.share = 1 / static_cast<double>(args.columns);
  std::copy(std::begin(call.numbers), std::end(call.numbers), args.number);
  args.dtype = static_cast<int32_t>(call.dtype());
  const int64_t size = 16 / sdk::bytes_of(call.dtype());
  bool in_packs = args.columns % size == 0, vectors_in_packs = true;
  int streamed = 0, written = 0;
  for (int i = 0; i < call.count; ++i) {
    const RowsArgument& argument = call.arguments[i];
    streamed += argument.kind == Kind::streamed ? 1 : 0;
    written += argument.is_matrix() && !argument.is_read() ? 1 : 0;
    args.tensor[i] = row_tensor(argument, call.dtype());
    if (argument.tensor == nullptr) continue;
    const bool is_in_packs = args.tensor[i].in_packs != 0;
    if (argument.is_matrix()) in_packs = in_packs && is_in_packs;
    if (argument.is_vector()) {
      vectors_in_packs = vectors_in_packs && is_in_packs && args.tensor[i].dtype == args.dtype;
    }
  }
  args.in_packs = in_packs ? 1 : 0;
  args.vectors_in_packs = vectors_in_packs ? 1 : 0;
  const int64_t packs = packs_of(call);
  const int held = held_by_thread(call);
  const bool has_sums = sums_of(call) > 0;
  const auto holds = [&](int64_t threads) {
    return threads * (threads < simt::kRowSmallestWave ? std::min(simt::kRowHeldInWave, held) : held);
  };
  const bool has_few = streamed > 0 && written == 0 && packs <= kFewPacks;
  const int most = has_sums ? simt::kRowMostThreads : has_few ? kFewThreads : simt::kRowThreads;
  args.group = call.may_share_wave ? 1 : wave;
  while (args.group < most && holds(args.group) < packs) args.group *= 2;
  while (1 << args.group_bits < args.group) ++args.group_bits;
  return args;
}

bool are_summed_as_held(const RowsCall& call, const simt::RowArgs& args) {
  return call.has_sums() && call.dtype() != sdk::Dtype::f64 && is_held(call, args);
}

bool is_of_blocks(const RowsCall& call, const simt::RowArgs& args, int wave) {
  if (args.group <= wave || !is_held(call, args) || args.in_packs == 0 || args.vectors_in_packs == 0) return false;
  for (int i = 0; i < call.count; ++i) {
    const simt::RowTensor& one = args.tensor[i];
    if (call.arguments[i].kind == Kind::out && one.data == nullptr) return false;
    if (call.arguments[i].kind == Kind::or_one && one.row != 0) return false;
    if (args.blocks > 1 && one.outer != args.inner * one.row) return false;
  }
  return true;
}

uint64_t place_kept(const RowsCall& call, simt::RowArgs& args, int wave, void* workspace) {
  if (!call.keeps()) return 0;
  const int64_t most = std::clamp(kChunkNumbers / std::max<int64_t>(args.columns, 1), kMostWideChunks, kMostChunks);
  args.chunk_rows = std::max(kFewestChunkRows, ceil_divide(args.rows, most));
  args.chunks = ceil_divide(args.rows, args.chunk_rows);
  if (are_summed_as_held(call, args)) {
    const int threads = threads_of_rows(args, wave);
    args.chunks = std::min(ceil_divide(args.rows, threads / args.group), kSummedThreads / threads);
  }
  const int64_t packs = packs_of(call);
  args.chunk_threads = 1;
  while (args.chunk_threads < simt::kRowSumThreads && args.chunk_threads < packs) args.chunk_threads *= 2;
  Workspace at(workspace);
  const auto row_bytes = static_cast<uint64_t>(args.rows) * sizeof(double);
  uint64_t bytes = 0;
  int64_t sums = 0;
  for (int i = 0; i < call.count; ++i) {
    sums += call.arguments[i].kind == Kind::of_column ? 1 : 0;
    const bool is_once = call.arguments[i].kind == Kind::kept_once;
    const bool is_of_block = call.arguments[i].kind == Kind::kept_of_block;
    if (call.arguments[i].kind != Kind::kept && !is_once && !is_of_block) continue;
    const uint64_t own_bytes = is_once       ? simt::kRowKeptOnce * sizeof(double)
                               : is_of_block ? static_cast<uint64_t>(args.blocks) * sizeof(double)
                                             : row_bytes;
    bytes += align_256(own_bytes);
    args.tensor[i].dtype = simt::kMapF64;
    args.tensor[i].outer = is_once ? 0 : is_of_block ? 1 : args.inner;
    args.tensor[i].row = is_once || is_of_block ? 0 : 1;
    args.tensor[i].column = is_once ? 1 : 0;
    if (workspace != nullptr) args.tensor[i].data = at.take<double>(own_bytes);
  }
  args.part_columns = ceil_divide(packs, simt::kRowPartPacks) * simt::kRowPartPacks * 16 / sdk::bytes_of(call.dtype());
  const auto part_bytes = static_cast<uint64_t>(args.chunks * sums * args.part_columns) * sizeof(double);
  if (workspace != nullptr) args.part = at.take<double>(part_bytes);
  return bytes + align_256(part_bytes);
}

int threads_of_rows(const simt::RowArgs& args, int wave) {
  return args.group <= wave ? simt::kRowThreads : args.group;
}
int64_t blocks_of_rows(const simt::RowArgs& args, int wave) {
  return ceil_divide(args.rows, threads_of_rows(args, wave) / args.group);
}
int shared_of_blocks(const RowsCall& call, const simt::RowArgs& args, int wave) {
  const int64_t bytes = sums_of(call) * simt::kBlockSumBytes * threads_of_rows(args, wave);
  return bytes <= simt::kBlockMostBytes ? static_cast<int>(bytes) : 0;
}

RowsPlan::RowsPlan(Device& device, const RowsKernels& kernels, const RowsCall& call)
    : KernelPlan(device),
      kernel_(device.kernel(kernels.image, std::string(kernels.prefix) + sdk::name_of(call.dtype()))),
      wave_(device.simt_width()) {
  if (call.keeps()) workspace_bound = UINT64_MAX;
  const std::string prefix = kernels.prefix;
  if (call.all_rows != RowsAll::never) all_ = device.kernel(kernels.image, prefix + "all");
  first_ = call.all_rows == RowsAll::around   ? device.kernel(kernels.image, prefix + "first")
           : call.all_rows == RowsAll::before ? all_
                                              : nullptr;
  if (kernels.has_blocks && call.dtype() != sdk::Dtype::f64) {
    blocks_ = device.kernel(kernels.image, prefix + "blocks_" + sdk::name_of(call.dtype()));
  }
  if (!call.has_sums()) return;
  chunks_ = device.kernel(kernels.image, prefix + (call.dtype() == sdk::Dtype::f64 ? "chunks_f64" : "chunks_f32"));
  if (call.dtype() != sdk::Dtype::f64) {
    summed_ = device.kernel(kernels.image, prefix + "summed");
  }
  totals_ = device.kernel(kernels.image, prefix + "totals");
}

uint64_t RowsPlan::workspace_of(const RowsCall& call) const {
  simt::RowArgs args = arguments_of_rows(call, wave_);
  return place_kept(call, args, wave_, nullptr);
}

void RowsPlan::launch(sdk::Stream& stream, const RowsCall& call, const sdk::Run& run) const {
  simt::RowArgs args = arguments_of_rows(call, wave_);
  args.errors = error_sink(run);
  place_kept(call, args, wave_, run.workspace());
  const PlaceScope scope(place_);
  const StreamHandle handle = own(stream).handle();
  if (first_ != nullptr) launch_grid(first_, 1, simt::kRowAllThreads, 0, handle, args, start_);
  const bool are_summed = are_summed_as_held(call, args);
  const int threads = threads_of_rows(args, wave_);
  const int64_t blocks = are_summed ? args.chunks : blocks_of_rows(args, wave_);
  // What a block of its own kernel has is one piece. That of sums has no other rows than those that are summed.
  const bool are_blocks = blocks_ != nullptr && are_summed == (sums_of(call) > 0) && is_of_blocks(call, args, wave_) &&
                          blocks <= grid_limit(threads);
  const int shared = are_blocks ? shared_of_blocks(call, args, wave_) : 0;
  launch_walking(are_blocks ? blocks_ : are_summed ? summed_ : kernel_, blocks, threads, shared, handle, args, start_);
  if (all_ != nullptr && first_ != all_) launch_grid(all_, 1, simt::kRowAllThreads, 0, handle, args, start_);
  if (!call.has_sums()) return;
  if (!are_summed) {
    const int64_t tiles = ceil_divide(packs_of(call), args.chunk_threads) *
                          ceil_divide(args.chunks, simt::kRowSumThreads / args.chunk_threads);
    launch_walking(chunks_, tiles, simt::kRowSumThreads, 0, handle, args, start_);
  }
  launch_walking(totals_, ceil_divide(args.part_columns, simt::kRowTotalColumns) * sums_of(call), simt::kRowThreads, 0,
                 handle, args, start_);
}

}  // namespace rlk::simt::host
