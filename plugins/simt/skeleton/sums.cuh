// sums by ids: of each place the terms whose id names it. A place has one owner, who finds its terms in the list of
// sorted ids and adds them in their order, in fp64.
//
//   along    places are neighbours in memory: a thread owns a pack of them. Of a few ids it reads all itself: nothing
//            is sorted then
//   across   each place has a row, whose elements are summed alike: a block owns a tile of rows and columns
//
// Tensors: the sums (rows, places), the terms (rows, numbers), ids. Where an id is out of range all sums of the list
// are NaN.
#pragma once

#include "sorted_ids.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

#include "row_parts.cuh"

namespace rlk::simt {

template <class T>
using SumOf = RowSum<sizeof(T) == 8>;

// The sums of `size` places from `place` on, of an own few ids.
template <class T, int size>
__device__ __forceinline__ bool sums_of_few(const MoveArgs& args, int64_t row, int64_t place, SumOf<T> (&sums)[size]) {
  const MoveTensor &terms = args.tensor[1], &ids = args.tensor[2];
  const int64_t list = args.size[kIdsLists] == 1 ? 0 : row;
  bool good = true;
  for (int64_t k = 0; k < args.size[kIdsCount]; ++k) {
    const int64_t id = move_id(ids, list * ids.stride[0] + k * ids.stride[2]);
    if (id < 0 || id >= args.size[kIdsPlaces]) {
      good = false;
      if (place == 0) {
        report_data_error(args.errors, kDataIdOutOfRange, args.size[kIdsLists] == 1 ? k : list, id);
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
  const SortedIds list = sorted_ids(args, args.size[kIdsLists] == 1 ? 0 : row);
  if (list.count == 0) return true;
  if (list.id(list.count - 1) == args.size[kIdsPlaces]) return false;
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
  move_units(args, [&](int64_t unit) {
    const int64_t row = move_divide(args.divisor[kByTiles], unit);
    const int64_t place = (unit - row * args.divisor[kByTiles].size) * kSize, left = args.size[kIdsPlaces] - place;
    SumOf<T> sums[kSize];
    const bool good =
        args.work[1] == nullptr ? sums_of_few<T>(args, row, place, sums) : sums_of_list<T>(args, row, place, sums);
    double y[kSize];
#pragma unroll
    for (int e = 0; e < kSize; ++e) y[e] = good ? sums[e].value() : static_cast<double>(NAN);
    move_write<double, T>(out, row * out.stride[0] + place * out.stride[1], out.stride[1],
                          left < kSize ? static_cast<int>(left) : kSize, y);
  });
}
__device__ __forceinline__ void sums_along(const MoveArgs& args) {
  with_move_type(args.size[kSumsDtype], [&](auto type) { sums_along_of<decltype(type)>(args); });
}

// Without ids: a pack of the sum over the middle dimension of tensor[1], size[1] of them. Units as by_packs makes them.
template <class T>
__device__ __forceinline__ void sum_middle(const MoveArgs& args, int64_t unit) {
  constexpr int kSize = Pack<T>::kSize;
  const MoveTensor &out = args.tensor[0], &x = args.tensor[1];
  const int64_t row = move_divide(args.divisor[0], unit), column = (unit - row * args.divisor[0].size) * kSize;
  const int64_t left = args.size[0] - column;
  const int count = left < kSize ? static_cast<int>(left) : kSize;
  SumOf<T> sums[kSize];
#pragma unroll 4
  for (int64_t k = 0; k < args.size[1]; ++k) {
    double term[kSize];
    move_read<double, T>(x, row * x.stride[0] + k * x.stride[1] + column * x.stride[2], x.stride[2], count, term);
#pragma unroll
    for (int e = 0; e < kSize; ++e) sums[e].add(term[e]);
  }
  double y[kSize];
#pragma unroll
  for (int e = 0; e < kSize; ++e) y[e] = sums[e].value();
  move_write<double, T>(out, row * out.stride[0] + column * out.stride[1], out.stride[1], count, y);
}

// Adds the terms begin .. end of a place: of a pack of rows.
template <class T, int size>
__device__ __forceinline__ void add_terms(const MoveArgs& args, const SortedIds& list, int64_t begin, int64_t end,
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
  const int64_t places = args.size[kIdsPlaces], rows = args.size[kSumsRows];
  const SortedIds list = sorted_ids(args, 0);
  const bool good = list.count == 0 || list.id(list.count - 1) != places;
  const int thread = static_cast<int>(threadIdx.x), own_pack = thread % kMoveTilePacks;
  for (int64_t tile = blockIdx.x; tile < args.units; tile += gridDim.x) {
    const int64_t down = move_divide(args.divisor[kByTiles], tile), first = down * kMoveTileRows;
    const int64_t row = ((tile - down * args.divisor[kByTiles].size) * kMoveTilePacks + own_pack) * kSize,
                  left = rows - row;
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
