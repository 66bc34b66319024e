// Places of ids by their ids, each id's padded to whole blocks.
//
// Tensors: the sorted places, the id of each block, the ids, how many places the blocks have. The workspace's last part
// has for each id, and behind the last one, where its padded places begin and where it begins in the sorted list.
#pragma once

#include "sorted_ids.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

__device__ __forceinline__ void put_i32(const MoveTensor& tensor, int64_t at, int64_t value) {
  static_cast<int32_t*>(tensor.data)[at * tensor.stride[0]] = static_cast<int32_t>(value);
}

// A thread has neighbouring ids; their padded sizes are summed over the threads before it.
__device__ __forceinline__ void align_plan(const MoveArgs& args) {
  __shared__ int64_t before[kMoveThreads];
  const SortedIds list = sorted_ids(args, 0);
  const int64_t ids = args.size[kIdsPlaces], each = (ids + kMoveThreads - 1) / kMoveThreads;
  const int64_t begin = threadIdx.x * each < ids ? threadIdx.x * each : ids;
  const int64_t end = begin + each < ids ? begin + each : ids;
  int64_t* const padded = static_cast<int64_t*>(args.work[2]);
  int64_t* const first = padded + ids + 1;
  const int64_t block = args.divisor[kByAlignBlock].size;
  int64_t own = 0, at = list.first_of(begin);
  for (int64_t id = begin; id < end; ++id) {
    first[id] = at;
    const int64_t next = list.first_of(id + 1);
    padded[id] = own;
    own += (next - at + block - 1) / block * block;
    at = next;
  }
  before[threadIdx.x] = own;
  __syncthreads();
  int64_t offset = 0;
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) offset += before[t];
  for (int64_t id = begin; id < end; ++id) padded[id] += offset;
  if (threadIdx.x != kMoveThreads - 1) return;
  first[ids] = at;
  padded[ids] = offset + own;
  put_i32(args.tensor[3], 0, offset + own);
}

// The id whose padded places have this one: the last that begins there or before.
__device__ __forceinline__ int64_t align_id_at(const int64_t* padded, int64_t ids, int64_t place) {
  int64_t low = 0, high = ids;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (padded[middle] <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ void align_fill(const MoveArgs& args, int64_t unit) {
  const SortedIds list = sorted_ids(args, 0);
  const int64_t ids = args.size[kIdsPlaces];
  const int64_t* const padded = static_cast<const int64_t*>(args.work[2]);
  const int64_t* const first = padded + ids + 1;
  const int64_t total = padded[ids], block = args.divisor[kByAlignBlock].size;
  int64_t place = list.count;
  if (unit < total) {
    const int64_t id = align_id_at(padded, ids, unit), within = unit - padded[id];
    if (within < first[id + 1] - first[id]) place = list.number(first[id] + within);
  }
  if (unit < args.size[kAlignLength]) put_i32(args.tensor[0], unit, place);
  if (unit >= args.size[kAlignBlocks]) return;
  put_i32(args.tensor[1], unit, unit * block < total ? align_id_at(padded, ids, unit * block) : -1);
}

}  // namespace rlk::simt

#endif
