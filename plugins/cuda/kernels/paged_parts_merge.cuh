// Parts of paged attention on tensor cores that lie tile by tile, so that a launch needs room for its own tiles and no
// more, and the kernel that puts them together: a block has the rows of one tile and key head, a warp one row at a
// time.
#pragma once

#include "../../simt/paged_attention.cuh"
#include "mma.cuh"

namespace rlk::cuda_kernels {

using namespace simt;

// The number of a row's part: of a share, a tile of this launch, a key head and a row of the tile.
__device__ __forceinline__ int64_t paged_tile_part(const PagedAttentionArgs& args, int64_t split, int64_t tile,
                                                   int64_t kv_head, int row) {
  return ((split * args.part_tiles + tile) * args.kv_heads + kv_head) * args.tile_rows + row;
}

// One row's shares, in their order. A share that saw no key may have written its sums alone. The code is short: each
// block runs it once, and what a multiprocessor has not run yet comes from memory.
template <class T>
__device__ __forceinline__ void paged_merge_row(const PagedAttentionArgs& args, int64_t part, int64_t token,
                                                int64_t head) {
  constexpr int kAtOnce = 8;                                         // parts under way
  constexpr int kPairs = 2;                                          // of elements, 64 apart
  __shared__ float2 of_shares[kPagedThreads / 32][kPagedMaxSplits];  // factor, below 0 without keys, and sum
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float2* const shares = of_shares[threadIdx.x / 32];
  const int64_t step = args.part_tiles * args.kv_heads * args.tile_rows;  // from a share to the next
  const float2* const sums = static_cast<const float2*>(args.part_sums) + part;
  float top = -INFINITY;
#pragma unroll 1
  for (int s = lane; s < args.splits; s += 32) {
    shares[s] = sums[s * step];
    top = fmaxf(top, shares[s].x);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) top = fmaxf(top, wave_xor(top, lanes));
  const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll 1
  for (int s = lane; s < args.splits; s += 32) {
    shares[s].x = shares[s].x == -INFINITY ? -1.0f : exp2_fast(shares[s].x - base);
  }
  wave_sync();
  const float* from = static_cast<const float*>(args.parts) + part * args.head_size + 2 * lane;
  const int64_t part_step = step * args.head_size;
  float total = 0.0f;
  float2 value[kPairs] = {make_float2(0.0f, 0.0f), make_float2(0.0f, 0.0f)};
#pragma unroll 1
  for (int first = 0; first < args.splits; first += kAtOnce) {
    float2 numbers[kAtOnce][kPairs], of_share[kAtOnce];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s, from += part_step) {
      of_share[s] = first + s < args.splits ? shares[first + s] : make_float2(-1.0f, 0.0f);
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        numbers[s][p] = of_share[s].x >= 0.0f && 2 * lane + 64 * p < args.head_size
                            ? *reinterpret_cast<const float2*>(from + 64 * p)
                            : make_float2(0.0f, 0.0f);
      }
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      const float factor = of_share[s].x < 0.0f ? 0.0f : of_share[s].x;
      total = fmaf(of_share[s].y, factor, total);
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        value[p].x = fmaf(numbers[s][p].x, factor, value[p].x);
        value[p].y = fmaf(numbers[s][p].y, factor, value[p].y);
      }
    }
  }
  wave_sync();  // the next row's shares overwrite these
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  T* const out = static_cast<T*>(args.out) + token * args.out_stride[0] + head * args.out_stride[1];
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const int d = 2 * lane + 64 * p;
    if (d < args.head_size) {
      *reinterpret_cast<uint32_t*>(out + d) = pack_pair<T>(value[p].x * inverse, value[p].y * inverse);
    }
  }
  if (lane == 0) paged_put_lse(args, token, head, top, total);
}

template <class T>
__device__ __forceinline__ void paged_tile_merge(const PagedAttentionArgs& args) {
  __shared__ unsigned long long first_bad;
  const int64_t item = args.first_block + blockIdx.x;
  const int64_t of_launch = item / args.kv_heads, kv_head = item - of_launch * args.kv_heads;
  const int64_t tile = args.first_tile + of_launch;
  if (paged_cu_is_bad(args, first_bad)) {
    for (int64_t row = tile; row < args.queries * args.group; row += args.tiles) {
      const int64_t token = row / args.group, head = kv_head * args.group + row % args.group;
      T* const out = static_cast<T*>(args.out) + token * args.out_stride[0] + head * args.out_stride[1];
      for (int d = static_cast<int>(threadIdx.x); d < args.head_size; d += kPagedThreads) out[d] = Narrow<T>::of(NAN);
      if (threadIdx.x == 0) paged_put_lse(args, token, head, 0.0f, NAN);
    }
    return;
  }
  if (args.sequences == 0) return;
  const PagedWork work = paged_work(args, tile, static_cast<int>(args.tile_rows));
  const int64_t left = work.queries * args.group - work.first_row;
  const int rows = static_cast<int>(left < args.tile_rows ? left : args.tile_rows);
  for (int r = static_cast<int>(threadIdx.x) / 32; r < rows; r += kPagedThreads / 32) {
    const int64_t row = work.first_row + r, query = row / args.group;
    paged_merge_row<T>(args, paged_tile_part(args, 0, of_launch, kv_head, r), work.query + query,
                       kv_head * args.group + (row - query * args.group));
  }
}

}  // namespace rlk::cuda_kernels
