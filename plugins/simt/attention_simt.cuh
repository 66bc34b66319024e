// attention without matrix units: for fp32 and fp64, and for 16-bit tensors that the matrix kernels cannot address.
//
// A wave owns kSimtRows rows, a tile is one key per lane. Scores: lanes run over the keys of a tile held in shared
// memory, a key's values serve all rows. Where shared memory does not hold the whole tile it comes in parts along the
// head size; a score adds its products in the same order, so its bits do not tell. Output: lanes run over the head
// size, weights come from the other lanes. Softmax is online, one tile at a time.
#pragma once

#include "attention.cuh"

namespace rlk::simt {

template <class T>
__device__ __forceinline__ void attention_simt(const AttentionArgs& args) {
  using A = Accumulator<T>;
  constexpr int kColumns = kSimtMaxHead / kWave;  // of the output, per lane
  unsigned char* const shared = dynamic_shared();
  if (fill_nan_if_bad<T>(args)) return;
  const AttentionWork work = find_work(args, args.first_block + blockIdx.x);
  if (work.valid == 0) return;

  const int head_size = args.head_size;
  const int columns = args.key_columns;
  A* key_tile = reinterpret_cast<A*>(shared);                              // [kWave][columns + 1]
  A* query_rows = key_tile + static_cast<int64_t>(kWave) * (columns + 1);  // [kSimtBlockRows][head_size]
  const int wave = static_cast<int>(threadIdx.x) / kWave, lane = static_cast<int>(threadIdx.x) % kWave;
  const int64_t rows = work.queries * args.group;
  const T* keys = tensor_row<const T>(args.k, work.batch, work.k_token, work.kv_head);
  const T* values = tensor_row<const T>(args.v, work.batch, work.k_token, work.kv_head);
  const A scale = A(args.scale * 1.4426950408889634074);  // scores in powers of 2

  for (int i = static_cast<int>(threadIdx.x); i < kSimtBlockRows * head_size; i += static_cast<int>(blockDim.x)) {
    const int64_t row = work.first_row + i / head_size;
    A value = A(0);
    if (row < rows) {
      value = widen(tensor_row<const T>(args.q, work.batch, work.q_token + row / args.group,
                                        work.kv_head * args.group + row % args.group)[i % head_size]);
    }
    query_rows[i] = value;
  }

  KeyRange range[kSimtRows];
  A top[kSimtRows], sum[kSimtRows], out[kSimtRows][kColumns];
#pragma unroll
  for (int r = 0; r < kSimtRows; ++r) {
    const int64_t row = work.first_row + wave * kSimtRows + r;
    range[r] = row < rows ? visible_keys(args, work, row / args.group) : KeyRange{0, -1};
    top[r] = -A(INFINITY);
    sum[r] = A(0);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) out[r][c] = A(0);
  }
  // The keys that any row of the block sees: bounds grow with the query.
  const int64_t last_row = work.first_row + kSimtBlockRows < rows ? work.first_row + kSimtBlockRows : rows;
  const int64_t first_key = visible_keys(args, work, work.first_row / args.group).first;
  const int64_t last_key = visible_keys(args, work, (last_row - 1) / args.group).last;

  for (int64_t tile = first_key / kWave * kWave; tile <= last_key; tile += kWave) {
    const uint64_t open = unmasked_keys<kWave>(args, work, tile);
    if (open == 0) continue;  // the same for the whole block
    A score[kSimtRows] = {};
    for (int from = 0; from < head_size; from += columns) {
      const int width = head_size - from < columns ? head_size - from : columns;
      __syncthreads();
      for (int j = wave; j < kWave; j += kSimtWaves) {
        const bool there = tile + j < work.keys && (open >> j & 1) != 0;
        const T* key = keys + (tile + j) * args.k.token_stride + from;
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
    const int count = static_cast<int>(work.keys - tile < kWave ? work.keys - tile : kWave);
    // A few keys at a time from zero: long sums of similar terms would gather the rounding of each.
    for (int first = 0; first < count; first += kSimtSumKeys) {
      A part[kSimtRows][kColumns] = {};
      for (int j = first; j < first + kSimtSumKeys && j < count; ++j) {
        if ((open >> j & 1) == 0) continue;  // its value may be a NaN
        const T* value = values + (tile + j) * args.v.token_stride;
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
#pragma unroll
        for (int c = 0; c < kColumns; ++c) out[r][c] += part[r][c];
      }
    }
  }

#pragma unroll
  for (int r = 0; r < kSimtRows; ++r) {
    const int64_t row = work.first_row + wave * kSimtRows + r;
    if (row >= rows) continue;
    const int64_t token = work.q_token + row / args.group;
    const int64_t head = work.kv_head * args.group + row % args.group;
    T* to = tensor_row<T>(args.out, work.batch, token, head);
    const bool empty = sum[r] == A(0);
    const A inverse = empty ? A(0) : A(1) / sum[r];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int d = c * kWave + lane;
      if (d < head_size) to[d] = Narrow<T>::of(A(out[r][c] * inverse));
    }
    if (args.lse != nullptr && lane == 0) {
      const A lse = empty ? -A(INFINITY) : A((double(top[r]) + log2(double(sum[r]))) * 0.69314718055994530942);
      static_cast<A*>(args.lse)[(work.lse_token + row / args.group) * args.q_heads + head] = lse;
    }
  }
}

}  // namespace rlk::simt
