// Sums of rows over fixed shares of keys: how a row's numbers of two sets of keys become one, and a warp with rows of
// its own that adds what several blocks of few rows would have, in their order. A share has four quarters, one of a
// warp of those blocks; weights are of 16 keys at a time.
#pragma once

#include "attention_parts.h"
#include "mma_tiles.cuh"

namespace rlk::cuda_kernels {

// What sums are to be multiplied by when others, whose exponents have subtracted something else, join them.
struct Raised {
  float own, other;
};
__device__ __forceinline__ Raised raise(float& top, float other_top) {
  const float highest = fmaxf(top, other_top), base = highest == -INFINITY ? 0.0f : highest;
  const Raised factors = {exp2_fast(top - base), exp2_fast(other_top - base)};
  top = highest;
  return factors;
}

// A warp's 16 rows, as MmaRows has them; totals are those of whole rows.
template <int kHeadTiles>
struct RowSums {
  float top[2], total[2], out[kHeadTiles][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      top[h] = -INFINITY;
      total[h] = 0.0f;
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) out[n][2 * h] = out[n][2 * h + 1] = 0.0f;
    }
  }
  __device__ __forceinline__ void add(const float (&other_top)[2], const float (&other_total)[2],
                                      const float (&other)[kHeadTiles][4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Raised factors = raise(top[h], other_top[h]);
      total[h] = fmaf(other_total[h], factors.other, total[h] * factors.own);
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) out[n][e] = fmaf(other[n][e], factors.other, out[n][e] * factors.own);
      }
    }
  }
};

// The results of rows that meet all their keys in one block. kActive: by fixed shares; else they are the state's own.
template <int kHeadTiles, bool kActive>
struct FixedSums {
  __device__ __forceinline__ explicit FixedSums(int64_t /*first_key*/) {}
  template <class Rows>
  __device__ __forceinline__ void finish(Rows& /*rows*/) {}
  template <class Rows>
  __device__ __forceinline__ float top(const Rows& rows, int r, int h) const {
    return rows.top[r][h];
  }
  template <class Rows>
  __device__ __forceinline__ float total(const Rows& rows, int r, int h) const {
    return rows.total(r, h);
  }
  template <class Rows>
  __device__ __forceinline__ float2 pair(const Rows& rows, int r, int n, int h) const {
    return make_float2(rows.out[r][n][2 * h], rows.out[r][n][2 * h + 1]);
  }
};

template <int kHeadTiles>
struct FixedSums<kHeadTiles, true> {
  RowSums<kHeadTiles> share, whole;
  int64_t number, quarter, end;  // the share; the size of its quarters; where the present one ends

  __device__ __forceinline__ explicit FixedSums(int64_t first_key) {
    share.clear();
    whole.clear();
    number = cuda::fixed_share_of(first_key);
    quarter = cuda::fixed_quarter(number);
    const int64_t begin = cuda::fixed_share_begin(number);
    end = begin + ((first_key - begin) / quarter + 1) * quarter;
  }
  // Before the weights of a tile that begins at first_key. No tile is of two quarters.
  template <class Rows>
  __device__ __forceinline__ void begin_tile(Rows& rows, int64_t first_key) {
    if (first_key < end) return;
    take_quarter(rows);
    if (first_key == cuda::fixed_share_begin(number + 1)) {
      ++number;
      quarter = cuda::fixed_quarter(number);
      take_share();
    }
    end = first_key + quarter;
  }
  template <class Rows>
  __device__ __forceinline__ void finish(Rows& rows) {
    take_quarter(rows);
    take_share();
  }
  template <class Rows>
  __device__ __forceinline__ float top(const Rows& /*rows*/, int /*r*/, int h) const {
    return whole.top[h];
  }
  template <class Rows>
  __device__ __forceinline__ float total(const Rows& /*rows*/, int /*r*/, int h) const {
    return whole.total[h];
  }
  template <class Rows>
  __device__ __forceinline__ float2 pair(const Rows& /*rows*/, int /*r*/, int n, int h) const {
    return make_float2(whole.out[n][2 * h], whole.out[n][2 * h + 1]);
  }

private:
  template <class Rows>
  __device__ __forceinline__ void take_quarter(Rows& rows) {
    const float totals[2] = {rows.total(0, 0), rows.total(0, 1)};
    share.add(rows.top[0], totals, rows.out[0]);
    rows.clear();
  }
  __device__ __forceinline__ void take_share() {
    whole.add(share.top, share.total, share.out);
    share.clear();
  }
};

}  // namespace rlk::cuda_kernels
