// Grouped products by mma.sync: each of 8 warps makes 64 x 64 of its block's tile.
#pragma once

#include "grouped_tiles.cuh"

namespace rlk::cuda_kernels {

// Where a lane's ldmatrix of an operand's 64 rows (kIsRows) or columns of the result reads.
template <bool kInner, bool kIsRows>
struct OperandFragments {
  uint32_t first;

  __device__ __forceinline__ explicit OperandFragments(int outer) {
    const uint32_t lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16, line = lane % 8;
    // Of the four matrices: which half of 16 rows of the result, which half of 16 of the sum.
    const uint32_t of_outer = kIsRows ? low : high, of_inner = kIsRows ? high : low;
    if (kInner) {
      first = (outer + 8 * of_outer + line) * kLineBytes + (of_inner ^ line) * 16;
    } else {
      first =
          outer / 64 * (kGroupedMmaInner * kLineBytes) + (8 * of_inner + line) * kLineBytes + (of_outer ^ line) * 16;
    }
  }
  // 16 rows of the result, 16 of the sum.
  __device__ __forceinline__ void load(uint32_t (&r)[4], uint32_t piece, int outer, int inner) const {
    if (kInner) {
      load_matrices(r, piece + ((first + outer * 16 * kLineBytes) ^ inner * 32));
    } else {
      load_matrices_transposed(r, piece + ((first + inner * 16 * kLineBytes) ^ outer * 32));
    }
  }
};

template <class T, class Form>
__device__ __forceinline__ void grouped_mma(const GroupedMmaArgs& args) {
  if (has_bad_groups<T, Form>(args)) return;
  static_assert(Form::kThreads == 256 && Form::kColumns == 256);
  constexpr int kTiles = 4;  // of 16 rows and of 16 columns, per warp
  const int warp = static_cast<int>(threadIdx.x) / 32, row = warp % 2 * 64, column = warp / 2 * 64;
  const uint32_t shared = shared_address(dynamic_shared());
  GroupedLoader<T, Form> loader(args, shared);
#pragma unroll 1
  for (int i = 0; i < Form::kStages - 1; ++i) loader.load();
  const OperandFragments<Form::kInnerA, true> left(row);
  const OperandFragments<Form::kInnerB, false> right(column);
  typename Form::Tiles tiles(args);
  uint32_t stage = 0;
#pragma unroll 1
  for (int64_t item = blockIdx.x;; item += gridDim.x) {
    const GroupedTile tile = tiles.find(item);
    if (tile.group < 0) break;
    float sum[kTiles][2 * kTiles][4];
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
#pragma unroll
      for (int n = 0; n < 2 * kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[r][n][e] = 0.0f;
      }
    }
#pragma unroll 1
    for (int64_t done = 0; done < tile.inner; done += kGroupedMmaInner) {
      wait_copies<Form::kStages - 2>();
      __syncthreads();
      const uint32_t piece = shared + stage * Form::kStageBytes, b_piece = piece + kGroupedMmaRows * kLineBytes;
      stage = stage + 1 == Form::kStages ? 0 : stage + 1;
      uint32_t a[2][kTiles][4], b[2][kTiles][4];
#pragma unroll
      for (int r = 0; r < kTiles; ++r) left.load(a[0][r], piece, r, 0);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) right.load(b[0][n], b_piece, n, 0);
      loader.load();
#pragma unroll
      for (int k = 0; k < kGroupedMmaInner / 16; ++k) {
        if (k + 1 < kGroupedMmaInner / 16) {
#pragma unroll
          for (int r = 0; r < kTiles; ++r) left.load(a[(k + 1) % 2][r], piece, r, k + 1);
#pragma unroll
          for (int n = 0; n < kTiles; ++n) right.load(b[(k + 1) % 2][n], b_piece, n, k + 1);
        }
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
#pragma unroll
          for (int n = 0; n < kTiles; ++n) {
            multiply_add<T>(sum[r][2 * n], a[k % 2][r], b[k % 2][n][0], b[k % 2][n][1]);
            multiply_add<T>(sum[r][2 * n + 1], a[k % 2][r], b[k % 2][n][2], b[k % 2][n][3]);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      write_sums<T, Form>(args, tile, row + 16 * r, column, sum[r]);
    }
  }
  wait_copies<0>();
}

}  // namespace rlk::cuda_kernels
