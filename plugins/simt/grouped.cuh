// Grouped products whose groups lie in device memory: no host reads where they begin. A block makes one tile of the
// result by plain multiplications in the accumulator's type, which sums of any dtype and strides can be; a group's
// last tile is not shared with the next group, so that every block has one matrix.
#pragma once

#include "element.cuh"
#include "grouped.h"
#include "skeleton/seqlens.cuh"

namespace rlk::simt {

// -1, or where cu_seqlens are bad.
__device__ __forceinline__ int64_t bad_boundary(const GroupedArgs& args, bool reports) {
  const Seqlens seqlens{args.cu_seqlens, 1, args.groups, args.rows, args.cu_are_i64, 0, args.errors};
  return check_seqlens<kGroupedThreads>(seqlens, reports);
}

template <class A>
struct GroupedShared {
  A a[kGroupedInner][kGroupedTile + 1], b[kGroupedInner][kGroupedTile + 1];
};

// sum over i < count of a(i, row) b(i, column) for the tile; put(row, column, sum) of each element that there is.
template <class A, class LoadA, class LoadB, class Put>
__device__ __forceinline__ void grouped_tile(GroupedShared<A>& shared, int64_t count, int64_t rows, int64_t columns,
                                             const LoadA& load_a, const LoadB& load_b, const Put& put) {
  constexpr int kSide = 16, kEach = kGroupedTile / kSide;
  static_assert(kSide * kSide == kGroupedThreads);
  const int me = static_cast<int>(threadIdx.x), x = me % kSide, y = me / kSide;
  A sum[kEach][kEach] = {};
  for (int64_t first = 0; first < count; first += kGroupedInner) {
#pragma unroll
    for (int i = me; i < kGroupedInner * kGroupedTile; i += kGroupedThreads) {
      const int k = i / kGroupedTile, at = i % kGroupedTile;
      shared.a[k][at] = first + k < count && at < rows ? load_a(first + k, at) : A(0);
      shared.b[k][at] = first + k < count && at < columns ? load_b(first + k, at) : A(0);
    }
    __syncthreads();
    A part[kEach][kEach] = {};  // of the sums: one chain would lose a digit in thousands of terms
#pragma unroll
    for (int k = 0; k < kGroupedInner; ++k) {
      A left[kEach], right[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        left[i] = shared.a[k][y + i * kSide];
        right[i] = shared.b[k][x + i * kSide];
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) part[i][j] = fma(left[i], right[j], part[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) sum[i][j] += part[i][j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int row = y + i * kSide, column = x + j * kSide;
      if (row < rows && column < columns) put(row, column, sum[i][j]);
    }
  }
}

__device__ __forceinline__ int64_t within_tile(int64_t left) {
  return left < kGroupedTile ? left : kGroupedTile;
}

// Tiles of rows: those of each group in order, at most rows / kGroupedTile + groups.
template <class T>
__device__ __forceinline__ void grouped_rows(const GroupedArgs& args) {
  using A = Accumulator<T>;
  __shared__ GroupedShared<A> shared;
  __shared__ int64_t found[3];  // group, first row, rows
  const int64_t column_tiles = args.columns > 0 ? (args.columns + kGroupedTile - 1) / kGroupedTile : 1;
  const int64_t item = args.first_block + blockIdx.x;
  const int64_t tile = item / column_tiles, column = (item - tile * column_tiles) * kGroupedTile;
  const int64_t columns = within_tile(args.columns - column);
  T* y = static_cast<T*>(args.y) + column * args.y_stride[1];
  const bool is_i64 = args.cu_are_i64 != 0;
  if (bad_boundary(args, item == 0) >= 0) {
    for (int64_t i = threadIdx.x; i < kGroupedTile * columns; i += kGroupedThreads) {
      const int64_t t = tile * kGroupedTile + i / columns;
      if (t < args.rows) y[t * args.y_stride[0] + i % columns * args.y_stride[1]] = Narrow<T>::of(A(NAN));
    }
    return;
  }
  if (threadIdx.x == 0) {
    int64_t before = 0, begin = 0;
    found[0] = -1;
    for (int64_t g = 0; g < args.groups; ++g) {
      const int64_t end = read_index(args.cu_seqlens, g + 1, is_i64);
      const int64_t tiles = (end - begin + kGroupedTile - 1) / kGroupedTile;
      if (tile < before + tiles) {
        found[0] = g;
        found[1] = begin + (tile - before) * kGroupedTile;
        found[2] = within_tile(end - found[1]);
        break;
      }
      before += tiles;
      begin = end;
    }
  }
  __syncthreads();
  if (found[0] < 0) return;
  const T* a = static_cast<const T*>(args.a) + found[1] * args.a_stride[0];
  const T* b = static_cast<const T*>(args.b) + found[0] * args.b_stride[0] + column * args.b_stride[2];
  y += found[1] * args.y_stride[0];
  grouped_tile<A>(
      shared, args.inner, found[2], columns,
      [&](int64_t k, int64_t t) { return widen(a[t * args.a_stride[0] + k * args.a_stride[1]]); },
      [&](int64_t k, int64_t c) { return widen(b[k * args.b_stride[1] + c * args.b_stride[2]]); },
      [&](int64_t t, int64_t c, A sum) { y[t * args.y_stride[0] + c * args.y_stride[1]] = Narrow<T>::of(sum); });
}

// The second kind: a matrix of accumulators of each group.
template <class T>
__device__ __forceinline__ void grouped_sums(const GroupedArgs& args) {
  using A = Accumulator<T>;
  __shared__ GroupedShared<A> shared;
  const int64_t column_tiles = (args.columns + kGroupedTile - 1) / kGroupedTile;
  const int64_t row_tiles = (args.left + kGroupedTile - 1) / kGroupedTile;
  const int64_t item = args.first_block + blockIdx.x;
  const int64_t rest = item / column_tiles, column = (item - rest * column_tiles) * kGroupedTile;
  const int64_t group = rest / row_tiles, row = (rest - group * row_tiles) * kGroupedTile;
  const int64_t rows = within_tile(args.left - row), columns = within_tile(args.columns - column);
  const bool is_i64 = args.cu_are_i64 != 0;
  A* y = static_cast<A*>(args.y) + group * args.y_stride[0] + row * args.y_stride[1] + column * args.y_stride[2];
  if (bad_boundary(args, false) >= 0) {
    for (int64_t i = threadIdx.x; i < rows * columns; i += kGroupedThreads) {
      y[i / columns * args.y_stride[1] + i % columns * args.y_stride[2]] = A(NAN);
    }
    return;
  }
  const int64_t begin = read_index(args.cu_seqlens, group, is_i64);
  const int64_t end = read_index(args.cu_seqlens, group + 1, is_i64);
  const T* a = static_cast<const T*>(args.a) + begin * args.a_stride[0] + row * args.a_stride[1];
  const T* b = static_cast<const T*>(args.b) + begin * args.b_stride[0] + column * args.b_stride[1];
  grouped_tile<A>(
      shared, end - begin, rows, columns,
      [&](int64_t t, int64_t r) { return widen(a[t * args.a_stride[0] + r * args.a_stride[1]]); },
      [&](int64_t t, int64_t c) { return widen(b[t * args.b_stride[0] + c * args.b_stride[1]]); },
      [&](int64_t r, int64_t c, A sum) { y[r * args.y_stride[1] + c * args.y_stride[2]] = sum; });
}

}  // namespace rlk::simt
