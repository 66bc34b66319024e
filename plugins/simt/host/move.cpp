// Query, plan and launch of operators that move data.
#include "move_parts.hpp"

#include <algorithm>
#include <numeric>

namespace rlk::simt::host {
namespace {

using moves::divisor_of;

int64_t elements_of(const rlk_tensor& tensor) {
  return std::accumulate(tensor.shape, tensor.shape + tensor.ndim, int64_t{1}, std::multiplies<>());
}
double bytes_of(const rlk_tensor& tensor) {
  return static_cast<double>(elements_of(tensor)) * static_cast<double>(sdk::bytes_of(sdk::dtype_of(tensor)));
}

int bits_of(int64_t numbers) {  // how many bits tell so many numbers apart
  int bits = 0;
  while (bits < 63 && (int64_t{1} << bits) < numbers) ++bits;
  return bits;
}

// NaN, or 0 of integers, to 8 bytes.
int64_t missing_bits(sdk::Dtype dtype) {
  switch (dtype) {
    case sdk::Dtype::f32:
      return 0x7fc000007fc00000;
    case sdk::Dtype::bf16:
      return 0x7fc07fc07fc07fc0;
    case sdk::Dtype::f16:
      return 0x7e007e007e007e00;
    case sdk::Dtype::f64:
      return 0x7ff8000000000000;
    default:
      return 0;
  }
}

// y (rows, columns), x (rows, columns, places), ids (rows, columns) of `call` are strides in elements of that dtype.
MoveCall taken(MoveCall call, sdk::Dtype dtype, bool of_whole_rows) {
  simt::MoveArgs& args = call.args;
  int64_t* const size = args.size;
  simt::MoveTensor &y = args.tensor[0], &x = args.tensor[1];
  int64_t bytes = sdk::bytes_of(dtype);
  size[simt::kTakeMissing] = missing_bits(dtype);
  if (of_whole_rows && y.stride[1] == 1 && x.stride[1] == 1) {
    const auto fits = [&](int64_t wide) {
      const int64_t ratio = wide / bytes;
      const auto divides = [ratio](int64_t number) { return number % ratio == 0; };
      return divides(size[simt::kTakeColumns]) && divides(y.stride[0]) && divides(x.stride[2]) &&
             reinterpret_cast<uintptr_t>(y.data) % static_cast<uintptr_t>(wide) == 0 &&
             reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(wide) == 0;
    };
    int64_t wide = 16;
    while (wide > bytes && !fits(wide)) wide /= 2;
    const int64_t ratio = wide / bytes;
    size[simt::kTakeColumns] /= ratio;
    y.stride[0] /= ratio;
    x.stride[2] /= ratio;
    bytes = wide;
  }
  size[simt::kTakeBytes] = bytes;
  const int64_t units = size[simt::kTakeRows] * size[simt::kTakeColumns];
  args.divisor[0] = divisor_of(size[simt::kTakeColumns]);
  call.add({0, units, int64_t{simt::kMoveThreads} * simt::kMoveItems});
  return call;
}

// Ids that no element asks for are looked at all the same: as if there were one row of them, or one column.
void look_at_ids(MoveCall& call, int64_t rows, int64_t columns) {
  call.args.tensor[0].data = nullptr;
  call.args.size[simt::kTakeRows] = rows;
  call.args.size[simt::kTakeColumns] = columns;
}

// Lists, or one list, of ids: strides of lists, lines, and ids of a line.
simt::MoveTensor list_of(const rlk_tensor* ids) {
  simt::MoveTensor out = moves::tensor_of(ids);
  out.stride[2] = ids->strides[ids->ndim - 1];
  out.stride[1] = 0;
  if (ids->ndim == 1) out.stride[0] = 0;
  return out;
}

// Whether 16 bytes of rows are read or written at once.
bool in_packs(const simt::MoveTensor& tensor, int64_t inner, int64_t outer) {
  return inner == 1 && is_aligned(tensor.data, outer * sdk::bytes_of(static_cast<sdk::Dtype>(tensor.dtype)));
}

// That the workspace is for.
uint64_t rows_at_once(const MoveCall& call) {
  return static_cast<uint64_t>(std::max<int64_t>(call.part_rows, 1));
}

}  // namespace

namespace moves {

simt::MoveDivisor divisor_of(int64_t size) {
  size = std::max<int64_t>(size, 1);
  return {size, simt::map_multiplier(size), simt::map_shift(size)};
}

void sort_lists(MoveCall& call, int64_t lists, int64_t ids, int64_t places) {
  int64_t* const size = call.args.size;
  const int number_bits = bits_of(ids);
  if (number_bits + bits_of(places + 1) > 64) {
    call.refusal = sdk::Support::no("SIZE", "an id and its number in the list must fit 64 bits");
  }
  size[simt::kIdsLists] = lists;
  size[simt::kIdsCount] = ids;
  size[simt::kIdsPlaces] = places;
  size[simt::kIdsShift] = number_bits;
  call.may_work = true;
  const int64_t chunks = ceil_divide(ids, simt::kMoveChunk);
  call.args.divisor[simt::kByChunks] = divisor_of(chunks);
  call.args.divisor[simt::kByWidth] = divisor_of(ids);
  const int64_t half = int64_t{1} << std::max(0, bits_of(std::min<int64_t>(ids, simt::kMoveChunk)) - 1);
  // Whole waves of any device.
  const int threads = static_cast<int>(std::clamp<int64_t>(half, 64, simt::kMoveThreads));
  const uint64_t bytes = static_cast<uint64_t>(lists * ids) * sizeof(uint64_t);
  call.work_bytes[0] = bytes;
  call.add({0, lists * chunks, 1, threads});
  if (chunks > 1) {
    call.work_bytes[1] = bytes;
    call.add({1, lists * ids});
  }
}

bool rows_in_packs(const rlk_tensor& tensor) {
  const int32_t last = tensor.ndim - 1;
  const int64_t bytes = sdk::bytes_of(sdk::dtype_of(tensor));
  return tensor.strides[last] == 1 && is_aligned(sdk::data_of(&tensor), 0) &&
         std::all_of(tensor.strides, tensor.strides + last,
                     [bytes](int64_t stride) { return stride * bytes % 16 == 0; });
}

simt::MoveTensor tensor_of(const rlk_tensor* tensor) {
  simt::MoveTensor out{};
  if (tensor == nullptr) return out;
  out.data = sdk::data_of(tensor);
  out.dtype = static_cast<int32_t>(sdk::dtype_of(*tensor));
  std::copy_n(tensor->strides, std::min<int32_t>(tensor->ndim, simt::kMoveDims), out.stride);
  return out;
}

MoveCall taking(const rlk_tensor* y, const rlk_tensor* x, const rlk_tensor* ids) {
  MoveCall call;
  for (const rlk_tensor* tensor : {y, y, ids}) call.bytes += bytes_of(*tensor);
  call.args.tensor[0] = tensor_of(y);
  call.args.tensor[1] = tensor_of(x);
  call.args.tensor[2] = tensor_of(ids);
  call.args.size[simt::kTakeRows] = y->shape[0];
  call.args.size[simt::kTakeColumns] = y->shape[1];
  return call;
}

MoveCall taken_along(const rlk_tensor* y, const rlk_tensor* x, const rlk_tensor* ids) {
  MoveCall call = taking(y, x, ids);
  const bool is_shared = ids->ndim == 1;
  int64_t* const of_x = call.args.tensor[1].stride;
  of_x[2] = of_x[1];
  of_x[1] = 0;
  if (is_shared) {
    call.args.tensor[2].stride[1] = ids->strides[0];
    call.args.tensor[2].stride[0] = 0;
  }
  call.args.size[simt::kTakePlaces] = x->shape[1];
  call.args.size[simt::kTakeByColumn] = is_shared ? 1 : 0;
  if (is_shared && y->shape[0] == 0) look_at_ids(call, 1, y->shape[1]);
  return taken(call, sdk::dtype_of(*y), false);
}

MoveCall taken_rows(const rlk_tensor* y, const rlk_tensor* x, const rlk_tensor* ids) {
  MoveCall call = taking(y, x, ids);
  int64_t* const of_x = call.args.tensor[1].stride;
  of_x[2] = of_x[0];
  of_x[0] = 0;
  call.args.size[simt::kTakePlaces] = x->shape[0];
  if (y->shape[1] == 0) look_at_ids(call, y->shape[0], 1);
  return taken(call, sdk::dtype_of(*y), true);
}

MoveCall sums_along(const rlk_tensor* sums, const rlk_tensor* terms, const rlk_tensor* ids) {
  MoveCall call;
  simt::MoveArgs& args = call.args;
  for (const rlk_tensor* tensor : {sums, terms, ids}) call.bytes += bytes_of(*tensor);
  const bool is_shared = ids->ndim == 1;
  const int64_t rows = sums->shape[0], places = sums->shape[1], count = terms->shape[1];
  args.tensor[0] = tensor_of(sums);
  args.tensor[1] = tensor_of(terms);
  args.tensor[2] = list_of(ids);
  args.tensor[0].in_packs = in_packs(args.tensor[0], sums->strides[1], sums->strides[0]) ? 1 : 0;
  sort_lists(call, is_shared ? 1 : rows, count, places);
  if (count <= simt::kMoveFew && rows > 0) {  // the owners read the ids
    call.count = 0;
    call.work_bytes[0] = 0;
  }
  args.size[simt::kSumsRows] = rows;
  args.size[simt::kSumsPadding] = -1;
  args.size[simt::kSumsDtype] = args.tensor[1].dtype;
  const int64_t packs = ceil_divide(places, 16 / sdk::bytes_of(sdk::dtype_of(*terms)));
  args.divisor[simt::kByTiles] = divisor_of(packs);
  call.add({2, rows * packs});
  return call;
}

MoveCall sums_across(const rlk_tensor* sums, const rlk_tensor* terms, const rlk_tensor* ids, int64_t padding,
                     bool by_frequency) {
  MoveCall call;
  simt::MoveArgs& args = call.args;
  for (const rlk_tensor* tensor : {sums, terms, ids}) call.bytes += bytes_of(*tensor);
  call.numerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;  // sums over tokens
  const int64_t places = sums->shape[0], rows = sums->shape[1], count = ids->shape[0];
  args.tensor[0] = tensor_of(sums);
  args.tensor[1] = tensor_of(terms);
  args.tensor[2] = list_of(ids);
  for (int t = 0; t < 2; ++t) {
    simt::MoveTensor& tensor = args.tensor[t];
    tensor.in_packs = in_packs(tensor, tensor.stride[1], tensor.stride[0]) ? 1 : 0;
    std::swap(tensor.stride[0], tensor.stride[1]);
  }
  sort_lists(call, 1, count, places);
  args.size[simt::kSumsRows] = rows;
  args.size[simt::kSumsPadding] = padding;
  args.size[simt::kSumsFrequency] = by_frequency ? 1 : 0;
  args.size[simt::kSumsDtype] = args.tensor[1].dtype;
  const int64_t packs = ceil_divide(rows, 16 / sdk::bytes_of(sdk::dtype_of(*terms)));
  const int64_t tiles = ceil_divide(packs, simt::kMoveTilePacks);
  args.divisor[simt::kByTiles] = divisor_of(tiles);
  call.add({2, ceil_divide(places, simt::kMoveTileRows) * tiles, 1});
  return call;
}

MoveCall by_units(int64_t units, std::initializer_list<const rlk_tensor*> tensors,
                  std::initializer_list<int64_t> sizes) {
  MoveCall call;
  int t = 0;
  for (const rlk_tensor* tensor : tensors) {
    if (tensor != nullptr) call.bytes += bytes_of(*tensor);
    call.args.tensor[t++] = tensor_of(tensor);
  }
  std::copy(sizes.begin(), sizes.end(), call.args.size);
  call.add({0, units});
  return call;
}

MoveCall of_batch(MoveCall call) {
  call.numerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;
  return call;
}

MoveCall in_parts(MoveCall call, int64_t rows, int first_at) {
  // Rows enough to fill a large device: with a quarter of it 256 sorted rows of 151,936 took a quarter longer.
  constexpr uint64_t kPartBytes = uint64_t{256} << 20;
  uint64_t row_bytes = 1;
  for (const uint64_t part : call.work_bytes) row_bytes += part;
  call.rows = rows;
  call.part_rows = std::clamp<int64_t>(static_cast<int64_t>(kPartBytes / row_bytes), 1, std::max<int64_t>(rows, 1));
  call.first_at = first_at;
  return call;
}

MoveCall summed_by_blocks(int64_t units, std::initializer_list<const rlk_tensor*> tensors,
                          std::initializer_list<int64_t> sizes) {
  // A sum of nothing is 0, by one block.
  MoveCall call = of_batch(by_units(std::max<int64_t>(units, 1), tensors, sizes));
  call.may_work = true;
  const int64_t blocks = ceil_divide(call.launches[0].units, simt::kMoveThreads);
  call.work_bytes[0] = static_cast<uint64_t>(blocks) * sizeof(double);
  if (blocks > 1) call.add({1, blocks, blocks});
  return call;
}

MoveCall by_packs(int64_t rows, int64_t columns, std::initializer_list<const rlk_tensor*> tensors,
                  std::initializer_list<int64_t> more_sizes) {
  MoveCall call = by_units(0, tensors, {columns});
  std::copy(more_sizes.begin(), more_sizes.end(), call.args.size + 1);
  int t = 0;
  for (const rlk_tensor* tensor : tensors) {
    if (tensor != nullptr) call.args.tensor[t].in_packs = rows_in_packs(*tensor) ? 1 : 0;
    ++t;
  }
  const int64_t packs = ceil_divide(columns, 16 / sdk::bytes_of(sdk::dtype_of(**tensors.begin())));
  call.args.divisor[0] = divisor_of(packs);
  call.launches[0].units = rows * packs;
  return call;
}

}  // namespace moves

sdk::Support MovesPlan::support(const Device& device, const MoveCall& call) {
  if (auto refused = device.refusal()) return *refused;
  if (call.refusal) return *call.refusal;
  sdk::Support answer = sdk::Support::yes("moves", call.numerics, RLK_SUPPORT_PREFERRED);
  const int64_t parts = call.part_rows == 0 ? 1 : ceil_divide(call.rows, call.part_rows);
  answer.cost_us =
      static_cast<double>(std::max<int64_t>(parts * call.count, 1)) * kLaunchUs + device.bytes_us(call.bytes);
  if (call.may_work) answer.workspace_bound = UINT64_MAX;
  return answer;
}

uint64_t MovesPlan::workspace_of(const MoveCall& call) {
  uint64_t bytes = 0;
  for (const uint64_t part : call.work_bytes) bytes += align_256(part * rows_at_once(call));
  return bytes;
}

void place_work(MoveCall& call, void* workspace) {
  Workspace at(workspace);
  for (size_t part = 0; part < std::size(call.work_bytes); ++part) {
    call.args.work[part] = call.work_bytes[part] != 0 ? at.take<void>(call.work_bytes[part] * rows_at_once(call))
                           : part > 0                 ? call.args.work[part - 1]
                                                      : nullptr;
  }
}

MovesPlan::MovesPlan(Device& device, const MoveKernels& kernels, const MoveCall& call) : KernelPlan(device) {
  if (call.may_work) workspace_bound = UINT64_MAX;
  for (size_t k = 0; k < kernels.names.size() && kernels.names[k] != nullptr; ++k) {
    kernels_[k] = device.kernel(kernels.image, std::string(kernels.image) + "_moves_" + kernels.names[k]);
  }
}

void MovesPlan::launch(sdk::Stream& stream, MoveCall call, const sdk::Run& run) const {
  if (call.refusal) throw sdk::Error(RLK_UNSUPPORTED, call.refusal->reason);
  place_work(call, run.workspace());
  call.args.errors = error_sink(run);
  const PlaceScope scope(place_);
  each_launch(call, [&](const MoveLaunch& one) {
    launch_walking(kernels_[static_cast<size_t>(one.kernel)], ceil_divide(one.units, one.block_units), one.threads, 0,
                   own(stream).handle(), call.args, start_);
  });
}

}  // namespace rlk::simt::host
