// What the host passes to the kernels of grouped products (grouped.cuh): plain structs.
#pragma once

#include "args.h"

namespace rlk::simt {

constexpr int kGroupedThreads = 256;
constexpr int kGroupedTile = 64;   // rows and columns that a block makes
constexpr int kGroupedInner = 16;  // of the sum, at a time

// Of rows that lie in order of their groups: y[t, c] = sum over k of a[t, k] b[group of t, k, c]; or, of each group,
// y[g, r, c] = sum over its rows t of a[t, r] b[t, c].
struct GroupedArgs {
  const void* a;
  const void* b;
  void* y;
  const void* cu_seqlens;                      // [groups + 1]
  int64_t groups, rows, inner, left, columns;  // left: r of the second kind
  int64_t a_stride[2];
  int64_t b_stride[3];  // of groups, k and c; of the second kind of t and c
  int64_t y_stride[3];  // of t and c; of the second kind of g, r and c
  int64_t first_block;  // of this launch, when one grid cannot hold all blocks
  int32_t cu_are_i64;
  int32_t reserved;
  DataErrorSink errors;
};

}  // namespace rlk::simt
