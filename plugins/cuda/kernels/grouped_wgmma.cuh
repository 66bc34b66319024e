// Grouped products by Hopper's wgmma: each of a block's warpgroups makes 64 or 128 rows of its tile.
#pragma once

#include "grouped_tiles.cuh"
#include "warpgroup_products.cuh"

namespace rlk::cuda_kernels {

template <class T, class Form>
__device__ __forceinline__ void grouped_wgmma(const GroupedMmaArgs& args) {
  if (has_bad_groups<T, Form>(args)) return;
  constexpr int kBlocks = kGroupedMmaRows / 64 / (Form::kThreads / 128), kTiles = Form::kColumns / 8;
  constexpr uint32_t kPanelBytes = kGroupedMmaInner * kLineBytes;  // also of a block of 64 rows
  // From 16 of the sum to the next 16.
  constexpr uint32_t kNextA = Form::kInnerA ? 32 : 16 * kLineBytes, kNextB = Form::kInnerB ? 32 : 16 * kLineBytes;
  // Products read one stage while those of the stage before may still run: neither can be filled.
  constexpr int kAhead = Form::kStages - 2;
  static_assert(kAhead >= 1);
  const int warp = static_cast<int>(threadIdx.x) / 32, block = warp / 4 * kBlocks;
  const uint32_t shared = (shared_address(dynamic_shared()) + 1023) / 1024 * 1024;
  GroupedLoader<T, Form> loader(args, shared);
#pragma unroll 1
  for (int i = 0; i < kAhead; ++i) loader.load();
  const uint64_t layout = operand_layout(kPanelBytes);
  typename Form::Tiles tiles(args);
  uint32_t stage = 0;
#pragma unroll 1
  for (int64_t item = blockIdx.x;; item += gridDim.x) {
    const GroupedTile tile = tiles.find(item);
    if (tile.group < 0) break;
    const bool has_rows = block * 64 < tile.rows;  // of the warpgroup
    float sum[kBlocks][kTiles][4];
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[r][n][e] = 0.0f;
      }
    }
#pragma unroll 1
    for (int64_t done = 0; done < tile.inner; done += kGroupedMmaInner) {
      wait_copies<kAhead - 1>();
      show_to_products();
      __syncthreads();
      const uint32_t piece = shared + stage * Form::kStageBytes;
      const uint32_t a = piece + block * kPanelBytes, b = piece + kGroupedMmaRows * kLineBytes;
      stage = stage + 1 == Form::kStages ? 0 : stage + 1;
      if (has_rows) {
        begin_products();
#pragma unroll
        for (int k = 0; k < kGroupedMmaInner / 16; ++k) {
#pragma unroll
          for (int r = 0; r < kBlocks; ++r) {
            multiply_group<T, Form::kInnerA, Form::kInnerB>(
                sum[r], operand_at(layout, a + r * kPanelBytes + k * kNextA), operand_at(layout, b + k * kNextB));
          }
        }
        commit_products();
      }
      loader.load();
      wait_products<1>();
    }
    wait_products<0>();
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) write_sums<T, Form>(args, tile, (block + r) * 64 + warp % 4 * 16, 0, sum[r]);
  }
  wait_copies<0>();
}

}  // namespace rlk::cuda_kernels
