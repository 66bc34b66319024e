// What the host passes to the tensor core kernels of grouped products (grouped_tiles.cuh): a plain struct.
#pragma once

#include "../../simt/args.h"

namespace rlk::cuda {

constexpr int kGroupedMmaRows = 128;  // of a tile of the result
constexpr int kGroupedMmaColumns = 256;
constexpr int kGroupedSmallColumns = 128;  // of small blocks
constexpr int kGroupedMmaInner = 64;       // of the sum, at a time
// Pieces of both operands that a block has room for: by mma.sync, by wgmma, and in small blocks.
constexpr int kGroupedMmaStages = 3, kGroupedWgmmaStages = 4, kGroupedSmallStages = 3;

constexpr int grouped_stage_bytes(int columns) {
  return (kGroupedMmaRows + columns) * kGroupedMmaInner * 2;
}
// Stages begin at a multiple of 1024 bytes.
constexpr int grouped_shared_bytes(int columns, int stages) {
  return stages * grouped_stage_bytes(columns) + 1024;
}

// Rows in order of their groups: y[t, c] = sum over i of a[t, i] b[group of t; i, c]; or sums over the rows t of each
// group: y[g, r, c] = sum of a[t, r] b[t, c].
struct GroupedMmaArgs {
  const void* a;
  const void* b;
  void* y;
  const void* cu_seqlens;                        // [groups + 1]
  int64_t groups, rows, inner, height, columns;  // inner: of the first kind; height: r of the second
  int64_t a_stride[2];                           // of t and i; of r and t
  int64_t b_stride[3];                           // of the group (the first kind's), of c and of i or t
  int64_t y_stride[3];                           // of the group (the second kind's), of t or r, and of c
  int32_t cu_are_i64;
  int32_t reserved;
  simt::DataErrorSink errors;
};

}  // namespace rlk::cuda
