// The rows of a block of attention without matrix units, and how they take keys in, tile by tile.
//
// A wave owns kSimtRows rows, a tile is one key per lane. Scores: lanes run over the keys of a tile held in shared
// memory, a key's values serve all rows. Where shared memory does not hold the whole tile it comes in parts along the
// head size; a score adds its products in the same order, so its bits do not tell. Output: lanes run over the head
// size, weights come from the other lanes. Softmax is online, one tile at a time.
#pragma once

#include "attention.cuh"

namespace rlk::simt {

// Keys that lie behind each other, of one head, and their values.
template <class T>
struct KeySpan {
  const T* keys;
  const T* values;
  int64_t key_stride, value_stride;
  int64_t count;
  KeyMask mask;
};

template <class T>
struct SimtRows {
  using A = Accumulator<T>;
  static constexpr int kColumns = kSimtMaxHead / kWave;  // of the output, per lane

  const int head_size, columns;  // columns: of the head size, in shared memory at a time
  const int wave, lane;
  A* const key_tile;    // [kWave][columns + 1]
  A* const query_rows;  // [kSimtBlockRows][head_size]
  A top[kSimtRows], sum[kSimtRows], out[kSimtRows][kColumns];

  __device__ __forceinline__ SimtRows(unsigned char* shared, int head, int key_columns)
      : head_size(head),
        columns(key_columns),
        wave(static_cast<int>(threadIdx.x) / kWave),
        lane(static_cast<int>(threadIdx.x) % kWave),
        key_tile(reinterpret_cast<A*>(shared)),
        query_rows(key_tile + static_cast<int64_t>(kWave) * (key_columns + 1)) {
#pragma unroll
    for (int r = 0; r < kSimtRows; ++r) {
      top[r] = -A(INFINITY);
      sum[r] = A(0);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) out[r][c] = A(0);
    }
  }

  // query(row of the block): its numbers, nullptr where there is no row.
  template <class Query>
  __device__ __forceinline__ void load_queries(const Query& query) {
    for (int i = static_cast<int>(threadIdx.x); i < kSimtBlockRows * head_size; i += static_cast<int>(blockDim.x)) {
      const T* const from = query(i / head_size);
      query_rows[i] = from != nullptr ? A(widen(from[i % head_size])) : A(0);
    }
  }

  // Keys [first_key, last_key] of the span, of which row r of the wave sees range[r]. A row that sees none of them
  // keeps its bits.
  template <class Args>
  __device__ __forceinline__ void add_keys(const Args& args, const KeySpan<T>& span, int64_t first_key,
                                           int64_t last_key, const KeyRange (&range)[kSimtRows]) {
    const A scale = A(args.scale * 1.4426950408889634074);  // scores in powers of 2
    for (int64_t tile = first_key / kWave * kWave; tile <= last_key; tile += kWave) {
      const uint64_t open = unmasked_keys<kWave>(span.mask, span.count, tile);
      if (open == 0) continue;  // the same for the whole block
      A score[kSimtRows] = {};
      for (int from = 0; from < head_size; from += columns) {
        const int width = head_size - from < columns ? head_size - from : columns;
        __syncthreads();
        for (int j = wave; j < kWave; j += kSimtWaves) {
          const bool there = tile + j < span.count && (open >> j & 1) != 0;
          const T* key = span.keys + (tile + j) * span.key_stride + from;
          for (int d = lane; d < width; d += kWave) {
            key_tile[j * (columns + 1) + d] = there ? A(widen(key[d])) : A(0);
          }
        }
        __syncthreads();
        const A* mine = key_tile + lane * (columns + 1);
        const A* query = query_rows + wave * kSimtRows * head_size + from;
#pragma unroll 4
        for (int d = 0; d < width; ++d) {
          const A k = mine[d];
#pragma unroll
          for (int r = 0; r < kSimtRows; ++r) score[r] = fma(query[r * head_size + d], k, score[r]);
        }
      }
      if (args.softcap > 0) {
        const Softcap<A> cap(args);
#pragma unroll
        for (int r = 0; r < kSimtRows; ++r) score[r] = cap(score[r]);
      } else {
#pragma unroll
        for (int r = 0; r < kSimtRows; ++r) score[r] *= scale;
      }
      A weight[kSimtRows];
#pragma unroll
      for (int r = 0; r < kSimtRows; ++r) {
        const bool visible = tile + lane >= range[r].first && tile + lane <= range[r].last && (open >> lane & 1) != 0;
        const A s = visible ? score[r] : -A(INFINITY);
        A highest = s;
#pragma unroll
        for (int lanes = kWave / 2; lanes > 0; lanes /= 2) highest = fmax(highest, wave_xor(highest, lanes));
        highest = fmax(highest, top[r]);
        const A base = highest == -A(INFINITY) ? A(0) : highest;
        const A factor = exp2_fast(top[r] - base);
        weight[r] = exp2_fast(s - base);
        A total = weight[r];
#pragma unroll
        for (int lanes = kWave / 2; lanes > 0; lanes /= 2) total += wave_xor(total, lanes);
        sum[r] = sum[r] * factor + total;
        top[r] = highest;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) out[r][c] *= factor;
      }
      add_values(span, tile, open, weight, range);
    }
  }

  // The rows' outputs and log-sum-exp. to(row of the block): where its output begins, nullptr where there is no row;
  // lse(row of the block): its place, nullptr where it is not wanted.
  template <class To, class Lse>
  __device__ __forceinline__ void store(const To& to, const Lse& lse_at) const {
#pragma unroll
    for (int r = 0; r < kSimtRows; ++r) {
      T* const row = to(wave * kSimtRows + r);
      if (row == nullptr) continue;
      const bool empty = sum[r] == A(0);
      const A inverse = empty ? A(0) : A(1) / sum[r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int d = c * kWave + lane;
        if (d < head_size) row[d] = Narrow<T>::of(A(out[r][c] * inverse));
      }
      A* const lse = lse_at(wave * kSimtRows + r);
      if (lse != nullptr && lane == 0) {
        *lse = empty ? -A(INFINITY) : A((double(top[r]) + log2(double(sum[r]))) * 0.69314718055994530942);
      }
    }
  }

private:
  // A few keys at a time from zero: long sums of similar terms would gather the rounding of each.
  __device__ __forceinline__ void add_values(const KeySpan<T>& span, int64_t tile, uint64_t open,
                                             const A (&weight)[kSimtRows], const KeyRange (&range)[kSimtRows]) {
    const int count = static_cast<int>(span.count - tile < kWave ? span.count - tile : kWave);
    for (int first = 0; first < count; first += kSimtSumKeys) {
      A part[kSimtRows][kColumns] = {};
      for (int j = first; j < first + kSimtSumKeys && j < count; ++j) {
        if ((open >> j & 1) == 0) continue;  // its value may be a NaN
        const T* value = span.values + (tile + j) * span.value_stride;
        A w[kSimtRows];
#pragma unroll
        for (int r = 0; r < kSimtRows; ++r) w[r] = wave_read(weight[r], j);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const int d = c * kWave + lane;
          if (c * kWave >= head_size) break;
          const A v = d < head_size ? A(widen(value[d])) : A(0);
#pragma unroll
          for (int r = 0; r < kSimtRows; ++r) part[r][c] = fma(w[r], v, part[r][c]);
        }
      }
#pragma unroll
      for (int r = 0; r < kSimtRows; ++r) {
        if (range[r].last < range[r].first) continue;  // a weight of 0 may have met the NaN of a key of others
#pragma unroll
        for (int c = 0; c < kColumns; ++c) out[r][c] += part[r][c];
      }
    }
  }
};

}  // namespace rlk::simt
