// Lists of ids in order, of one id in the order of their numbers.
//
//   sort   a block sorts a chunk of a list: keys are id << shift | number, so none is there twice
//   rank   where a list has several chunks: a key's place is the sum of its places in all of them
//
// tensor[2] has the ids: lists, lines, ids of a line. An id out of range is a data error and has, as one that is
// skipped, the key of the place behind the last one.
#pragma once

#include "move.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

__device__ __forceinline__ void ids_sort(const MoveArgs& args) {
  __shared__ uint64_t key[kMoveChunk];
  const MoveTensor& ids = args.tensor[2];
  const int64_t count = args.size[kIdsCount], places = args.size[kIdsPlaces], shift = args.size[kIdsShift];
  for (int64_t block = blockIdx.x; block < args.units; block += gridDim.x) {
    const int64_t list = move_divide(args.divisor[kByChunks], block);
    const int64_t begin = (block - list * args.divisor[kByChunks].size) * kMoveChunk;
    const int here = static_cast<int>(count - begin < kMoveChunk ? count - begin : kMoveChunk);
    int padded = 1;
    while (padded < here) padded *= 2;
    for (int i = static_cast<int>(threadIdx.x); i < padded; i += static_cast<int>(blockDim.x)) {
      key[i] = ~uint64_t{0};
      if (i >= here) continue;
      const int64_t number = begin + i;
      const int64_t line = move_divide(args.divisor[kByWidth], number);
      const int64_t id = move_id(ids, list * ids.stride[0] + line * ids.stride[1] +
                                          (number - line * args.divisor[kByWidth].size) * ids.stride[2]);
      const bool is_skipped = args.size[kIdsSkips] != 0 && id == args.size[kIdsSkipped];
      const bool is_place = id >= 0 && id < places && !is_skipped;
      if (!is_place && !is_skipped) {
        report_data_error(args.errors, kDataIdOutOfRange, args.size[kIdsLists] == 1 ? number : list, id);
      }
      key[i] = static_cast<uint64_t>(is_place ? id : places) << shift | static_cast<uint64_t>(number);
    }
    for (int size = 2; size <= padded; size *= 2) {
      for (int stride = size / 2; stride > 0; stride /= 2) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < padded / 2; i += static_cast<int>(blockDim.x)) {
          const int low = 2 * i - (i & (stride - 1)), high = low + stride;
          const uint64_t a = key[low], b = key[high];
          if ((a > b) == ((low & size) == 0)) {
            key[low] = b;
            key[high] = a;
          }
        }
      }
    }
    __syncthreads();
    uint64_t* const out = static_cast<uint64_t*>(args.work[0]) + list * count + begin;
    for (int i = static_cast<int>(threadIdx.x); i < here; i += static_cast<int>(blockDim.x)) out[i] = key[i];
    __syncthreads();
  }
}

// How many of the sorted keys are below `key`.
__device__ __forceinline__ int64_t keys_below(const uint64_t* keys, int64_t count, uint64_t key) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ void ids_rank(const MoveArgs& args) {
  const int64_t count = args.size[kIdsCount], total = args.size[kIdsLists] * count;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMoveThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kMoveThreads + threadIdx.x; i < total; i += step) {
    const int64_t list = i / count, own = (i - list * count) / kMoveChunk * kMoveChunk;
    const uint64_t* const keys = static_cast<const uint64_t*>(args.work[0]) + list * count;
    const uint64_t key = keys[i - list * count];
    int64_t place = i - list * count - own;
    for (int64_t chunk = 0; chunk < count; chunk += kMoveChunk) {
      if (chunk == own) continue;
      place += keys_below(keys + chunk, count - chunk < kMoveChunk ? count - chunk : kMoveChunk, key);
    }
    static_cast<uint64_t*>(args.work[1])[list * count + place] = key;
  }
}

// A sorted list.
struct SortedIds {
  const uint64_t* keys;
  int64_t count, shift;

  __device__ __forceinline__ int64_t first_of(int64_t place) const {
    return keys_below(keys, count, static_cast<uint64_t>(place) << shift);
  }
  __device__ __forceinline__ int64_t id(int64_t i) const { return static_cast<int64_t>(keys[i] >> shift); }
  __device__ __forceinline__ int64_t number(int64_t i) const {
    return static_cast<int64_t>(keys[i] & ((uint64_t{1} << shift) - 1));
  }
};
__device__ __forceinline__ SortedIds sorted_ids(const MoveArgs& args, int64_t list) {
  const int64_t count = args.size[kIdsCount];
  return {static_cast<const uint64_t*>(args.work[1]) + list * count, count, args.size[kIdsShift]};
}

}  // namespace rlk::simt

#endif
