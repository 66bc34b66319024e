// sums by ids: of each place the terms whose id names it. A place has one owner, who finds its terms in the list of
// sorted ids and adds them in their order, in fp64.
//
//   sort    a block sorts a chunk of a list: keys are id << shift | number, so none is there twice
//   rank    where a list has several chunks: a key's place is the sum of its places in all of them
//   along   places are neighbours in memory: a thread owns a pack of them
//   across  each place has a row, whose elements are summed alike: a block owns a tile of rows and columns
//
// Tensors: the sums (rows, places), the terms (rows, numbers), ids (lists, numbers). An id out of range has the key of
// the place behind the last one: it is the list's last then, and all sums of the list are NaN.
#pragma once

#include "move.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

#include "row_parts.cuh"

namespace rlk::simt {

__device__ __forceinline__ void sums_sort(const MoveArgs& args) {
  __shared__ uint64_t key[kMoveChunk];
  const MoveTensor& ids = args.tensor[2];
  const int64_t count = args.size[kSumsIds], places = args.size[kSumsPlaces], shift = args.size[kSumsShift];
  for (int64_t block = blockIdx.x; block < args.units; block += gridDim.x) {
    const int64_t list = move_divide(args.divisor[0], block);
    const int64_t begin = (block - list * args.divisor[0].size) * kMoveChunk;
    const int here = static_cast<int>(count - begin < kMoveChunk ? count - begin : kMoveChunk);
    int padded = 1;
    while (padded < here) padded *= 2;
    for (int i = static_cast<int>(threadIdx.x); i < padded; i += static_cast<int>(blockDim.x)) {
      key[i] = ~uint64_t{0};
      if (i >= here) continue;
      const int64_t number = begin + i;
      int64_t id = move_id(ids, list * ids.stride[0] + number * ids.stride[1]);
      if (id < 0 || id >= places) {
        report_data_error(args.errors, kDataIdOutOfRange, args.size[kSumsLists] == 1 ? number : list, id);
        id = places;
      }
      key[i] = static_cast<uint64_t>(id) << shift | static_cast<uint64_t>(number);
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

__device__ __forceinline__ void sums_rank(const MoveArgs& args) {
  const int64_t count = args.size[kSumsIds], total = args.size[kSumsLists] * count;
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

// A sorted list. Without one it is short, and its ids are read as they are.
struct SumsList {
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
__device__ __forceinline__ SumsList sums_list(const MoveArgs& args, int64_t list) {
  const int64_t count = args.size[kSumsIds];
  return {static_cast<const uint64_t*>(args.work[1]) + list * count, count, args.size[kSumsShift]};
}

template <class T>
using SumOf = RowSum<sizeof(T) == 8>;

// The sums of `size` places from `place` on, of an own few ids.
template <class T, int size>
__device__ __forceinline__ bool sums_of_few(const MoveArgs& args, int64_t row, int64_t place, SumOf<T> (&sums)[size]) {
  const MoveTensor &terms = args.tensor[1], &ids = args.tensor[2];
  const int64_t list = args.size[kSumsLists] == 1 ? 0 : row;
  bool good = true;
  for (int64_t k = 0; k < args.size[kSumsIds]; ++k) {
    const int64_t id = move_id(ids, list * ids.stride[0] + k * ids.stride[1]);
    if (id < 0 || id >= args.size[kSumsPlaces]) {
      good = false;
      if (place == 0) {
        report_data_error(args.errors, kDataIdOutOfRange, args.size[kSumsLists] == 1 ? k : list, id);
      }
    }
    if (id < place || id >= place + size) continue;
    const double term =
        static_cast<double>(widen(static_cast<const T*>(terms.data)[row * terms.stride[0] + k * terms.stride[1]]));
#pragma unroll
    for (int e = 0; e < size; ++e) {
      if (id == place + e) sums[e].add(term);
    }
  }
  return good;
}
template <class T, int size>
__device__ __forceinline__ bool sums_of_list(const MoveArgs& args, int64_t row, int64_t place, SumOf<T> (&sums)[size]) {
  const MoveTensor& terms = args.tensor[1];
  const SumsList list = sums_list(args, args.size[kSumsLists] == 1 ? 0 : row);
  if (list.count == 0) return true;
  if (list.id(list.count - 1) == args.size[kSumsPlaces]) return false;
  int64_t i = list.first_of(place);
#pragma unroll
  for (int e = 0; e < size; ++e) {
    for (; i < list.count && list.id(i) == place + e; ++i) {
      sums[e].add(static_cast<double>(
          widen(static_cast<const T*>(terms.data)[row * terms.stride[0] + list.number(i) * terms.stride[1]])));
    }
  }
  return true;
}

template <class T>
__device__ __forceinline__ void sums_along_of(const MoveArgs& args) {
  constexpr int kSize = Pack<T>::kSize;
  const MoveTensor& out = args.tensor[0];
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMoveThreads;
  for (int64_t unit = static_cast<int64_t>(blockIdx.x) * kMoveThreads + threadIdx.x; unit < args.units; unit += step) {
    const int64_t row = move_divide(args.divisor[1], unit);
    const int64_t place = (unit - row * args.divisor[1].size) * kSize, left = args.size[kSumsPlaces] - place;
    SumOf<T> sums[kSize];
    const bool good =
        args.work[1] == nullptr ? sums_of_few<T>(args, row, place, sums) : sums_of_list<T>(args, row, place, sums);
    double y[kSize];
#pragma unroll
    for (int e = 0; e < kSize; ++e) y[e] = good ? sums[e].value() : static_cast<double>(NAN);
    move_write<double, T>(out, row * out.stride[0] + place * out.stride[1], out.stride[1],
                          left < kSize ? static_cast<int>(left) : kSize, y);
  }
}
__device__ __forceinline__ void sums_along(const MoveArgs& args) {
  with_move_type(args.size[kSumsDtype], [&](auto type) { sums_along_of<decltype(type)>(args); });
}

// Adds the terms begin .. end of a place: of a pack of rows.
template <class T, int size>
__device__ __forceinline__ void add_terms(const MoveArgs& args, const SumsList& list, int64_t begin, int64_t end,
                                          int64_t row, int count, SumOf<T> (&sums)[size]) {
  const MoveTensor& terms = args.tensor[1];
#pragma unroll 4
  for (int64_t i = begin; i < end; ++i) {
    double x[size];
    move_read<double, T>(terms, row * terms.stride[0] + list.number(i) * terms.stride[1], terms.stride[0], count, x);
#pragma unroll
    for (int e = 0; e < size; ++e) sums[e].add(x[e]);
  }
}
template <class T, int size>
__device__ __forceinline__ void put_sums(const MoveArgs& args, int64_t place, int64_t row, int count, double divisor,
                                         bool good, const SumOf<T> (&sums)[size]) {
  const MoveTensor& out = args.tensor[0];
  double y[size];
#pragma unroll
  for (int e = 0; e < size; ++e) y[e] = good ? sums[e].value() / divisor : static_cast<double>(NAN);
  move_write<double, T>(out, row * out.stride[0] + place * out.stride[1], out.stride[0], count, y);
}

// Tiles of kMoveTileRows places and kMoveTilePacks packs. A place with many terms is the whole block's: slices of the
// terms, whose sums are added in their order.
template <class T>
__device__ __forceinline__ void sums_across_of(const MoveArgs& args, int64_t* starts, double* part) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr bool kLong = sizeof(T) == 8;
  const int64_t places = args.size[kSumsPlaces], rows = args.size[kSumsRows];
  const SumsList list = sums_list(args, 0);
  const bool good = list.count == 0 || list.id(list.count - 1) != places;
  const int thread = static_cast<int>(threadIdx.x), own_pack = thread % kMoveTilePacks;
  for (int64_t tile = blockIdx.x; tile < args.units; tile += gridDim.x) {
    const int64_t down = move_divide(args.divisor[1], tile), first = down * kMoveTileRows;
    const int64_t row = ((tile - down * args.divisor[1].size) * kMoveTilePacks + own_pack) * kSize, left = rows - row;
    const int count = left < kSize ? static_cast<int>(left) : kSize;
    for (int i = thread; i <= kMoveTileRows; i += kMoveThreads) {
      starts[i] = list.first_of(first + i < places ? first + i : places);
    }
    __syncthreads();
    const auto terms_of = [&](int i) { return first + i == args.size[kSumsPadding] ? 0 : starts[i + 1] - starts[i]; };
    const auto divisor_of = [&](int i) {
      return args.size[kSumsFrequency] != 0 && terms_of(i) > 1 ? static_cast<double>(terms_of(i)) : 1.0;
    };
    for (int i = thread / kMoveTilePacks; i < kMoveTileRows && first + i < places && count > 0; i += kMoveSlices) {
      if (good && terms_of(i) > kMoveLong) continue;
      SumOf<T> sums[kSize];
      if (good) add_terms<T>(args, list, starts[i], starts[i] + terms_of(i), row, count, sums);
      put_sums<T>(args, first + i, row, count, divisor_of(i), good, sums);
    }
    for (int i = 0; i < kMoveTileRows && first + i < places && good; ++i) {
      if (terms_of(i) <= kMoveLong) continue;
      const int slice = thread / kMoveTilePacks;
      SumOf<T> sums[kSize];
      if (count > 0) {
        add_terms<T>(args, list, starts[i] + terms_of(i) * slice / kMoveSlices,
                     starts[i] + terms_of(i) * (slice + 1) / kMoveSlices, row, count, sums);
      }
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        part[thread * kSize + e] = sums[e].sum;
        if (kLong) part[(kMoveThreads + thread) * kSize + e] = sums[e].lost;
      }
      __syncthreads();
      if (slice == 0 && count > 0) {
        for (int s = 1; s < kMoveSlices; ++s) {
#pragma unroll
          for (int e = 0; e < kSize; ++e) {
            SumOf<T> other;
            const int from = s * kMoveTilePacks + own_pack;
            other.sum = part[from * kSize + e];
            if (kLong) other.lost = part[(kMoveThreads + from) * kSize + e];
            sums[e].add(other);
          }
        }
        put_sums<T>(args, first + i, row, count, divisor_of(i), good, sums);
      }
      __syncthreads();
    }
    __syncthreads();
  }
}
__device__ __forceinline__ void sums_across(const MoveArgs& args) {
  __shared__ int64_t starts[kMoveTileRows + 1];
  __shared__ double part[kMoveThreads * Pack<uint16_t>::kSize];
  with_move_type(args.size[kSumsDtype], [&](auto type) { sums_across_of<decltype(type)>(args, starts, part); });
}

}  // namespace rlk::simt

#endif
