// What the gradients of attention on warpgroup products compute a row of queries at a time: the terms of scores before
// the blocks of keys, and grad_q behind them.
#pragma once

#include "attention_gradients_wgmma_options.cuh"

namespace rlk::cuda_kernels {

// A block per (sequence, tile, kGradientWgmmaTermHeads heads), those beyond the queries too: 8 lanes have a row,
// several at once.
template <class T, class Args>
__device__ __forceinline__ void attention_gradients_wgmma_terms(const Args& args) {
  constexpr int kQueries = cuda::kGradientWgmmaQueries, kHeads = cuda::kGradientWgmmaTermHeads;
  constexpr int kLanes = 8, kRows = 4,
                kStep = simt::kGradientThreads / kLanes;  // from one of a lane's rows to the next
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const uint32_t parts = (static_cast<uint32_t>(args.q_heads) + kHeads - 1) / kHeads, block = blockIdx.x / parts;
  const int first_head = static_cast<int>(blockIdx.x % parts) * kHeads;
  const int64_t sequence = block / static_cast<uint32_t>(args.query_tiles),
                first = sequence * args.q_heads * args.query_tiles + block % static_cast<uint32_t>(args.query_tiles);
  const QueryTile tile = query_tile(args, first);
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / kLanes; row < kQueries * kHeads; row += kRows * kStep) {
    float offset[kRows] = {};
    for (int d = 8 * lane; d < args.head_size; d += 8 * kLanes) {
      uint4 a[kRows] = {}, b[kRows] = {};
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int head = first_head + (row + i * kStep) % kHeads, place = (row + i * kStep) / kHeads;
        if (place >= tile.count || head >= args.q_heads) continue;
        a[i] = *reinterpret_cast<const uint4*>(
            simt::sample_row<const T>(args.out, tile.sequence, 0, tile.token + place, head) + d);
        b[i] = *reinterpret_cast<const uint4*>(
            simt::sample_row<const T>(args.grad_out_rows, tile.sequence, 0, tile.token + place, head) + d);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const uint32_t of_a[] = {a[i].x, a[i].y, a[i].z, a[i].w}, of_b[] = {b[i].x, b[i].y, b[i].z, b[i].w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float2 x = unpack_pair<T>(of_a[e]), y = unpack_pair<T>(of_b[e]);
          offset[i] = fmaf(x.x, y.x, fmaf(x.y, y.y, offset[i]));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) offset[i] += simt::wave_xor(offset[i], lanes);
      const int head = first_head + (row + i * kStep) % kHeads, place = (row + i * kStep) / kHeads;
      if (lane != 0 || head >= args.q_heads) continue;
      float lse = INFINITY, its = 0.0f;
      if (place < tile.count) {
        const int64_t query = tile.token + place;
        const float given = *simt::sample_row<const float>(args.lse_rows, tile.sequence, 0, query, head);
        const float grad_lse = args.grad_lse.data != nullptr
                                   ? *simt::sample_row<const float>(args.grad_lse, tile.sequence, 0, query, head)
                                   : 0.0f;
        if (given != -INFINITY) {
          lse = static_cast<float>(double(given) * 1.4426950408889634074);
          its = grad_lse - offset[i];
        }
      }
      const int64_t to = (first + static_cast<int64_t>(head) * args.query_tiles) * kQueries + place;
      args.lse[to] = lse;
      args.offset[to] = its;
    }
  }
}

// grad_q of a tile, from its sums: a block per (sequence, head, tile).
template <class T, int kPadded, class Args>
__device__ __forceinline__ void attention_gradients_wgmma_rows(const Args& args) {
  if constexpr (kHasGradientOptions<Args>) {
    if (simt::fill_nan_if_bad<T>(args.call, true)) return;
  }
  constexpr int kQueries = cuda::kGradientWgmmaQueries, kColumns = kPadded < 128 ? kPadded : 128;  // at a time
  constexpr int kSums = kQueries * kColumns / 4, kTileSums = kQueries * kPadded;
  __shared__ float rows[kQueries][kColumns + 2];
  const int64_t at = blockIdx.x;
  const QueryTile tile = query_tile(args, at);
  if (is_packed(args) && tile.count < 1) return;
  const float4* from = reinterpret_cast<const float4*>(args.sums + at * kTileSums);
#pragma unroll 1
  for (int first = 0; first < kPadded; first += kColumns, from += kSums) {
    if (first > 0) __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSums; i += simt::kGradientThreads) {
      const float4 sum = from[i];
      const int thread = i % 128, row = thread / 32 * 16 + thread % 32 / 4;
      const int column = i / 1024 * 64 + i / 128 % 8 * 8 + thread % 4 * 2;
      rows[row][column] = sum.x;
      rows[row][column + 1] = sum.y;
      rows[row + 8][column] = sum.z;
      rows[row + 8][column + 1] = sum.w;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kQueries * kColumns / 2; i += simt::kGradientThreads) {
      const int row = i / (kColumns / 2), column = i % (kColumns / 2) * 2;
      if (row >= tile.count || first + column >= args.head_size) continue;
      T* const to = simt::sample_row<T>(args.grad_q, tile.sequence, 0, tile.token + row, tile.head) + first + column;
      *reinterpret_cast<uint32_t*>(to) =
          pack_pair<T>(rows[row][column] * args.scale, rows[row][column + 1] * args.scale);
    }
  }
}

}  // namespace rlk::cuda_kernels
