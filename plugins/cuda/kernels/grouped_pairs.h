// What the host passes to grouped_pairs.cuh, and the tiles that both agree on.
#pragma once

#include "attention_wgmma.h"
#include "grouped_mma.h"

namespace rlk::cuda {

constexpr int kGroupedPair = 2;  // blocks of a cluster
constexpr int kGroupedPairThreads = 384;
constexpr int kGroupedPairStages = 4;
constexpr int kGroupedPairStageBytes = grouped_stage_bytes(kGroupedMmaColumns);
// A multiplying warp's, where it puts its part of a tile into lines.
constexpr int kGroupedPairWarpBytes = 4096;

// Rows of the result, or of the sum, in a box of each map. An operand whose lines are of the sum comes in halves of a
// tile, one box each; else in panels of 64 lines.
constexpr int kGroupedPairBox = 64, kGroupedPairColumnsBox = kGroupedMmaColumns / 2;

// Stages begin at a multiple of 1024 bytes; behind them the warps' lines, then the barriers.
constexpr int kGroupedPairSharedBytes =
    kGroupedPairStages * (kGroupedPairStageBytes + 16) + 8 * kGroupedPairWarpBytes + 1024;

// The same products as GroupedMmaArgs has. Tiles and elements are counted in 32 bits.
struct GroupedPairArgs {
  TensorMap a, b;  // of slabs; a third dimension of b's, of the first kind of products, is its group
  GroupedMmaArgs of;
  int64_t height_tiles, column_tiles;  // height: of the second kind
  int64_t reserved;
};

}  // namespace rlk::cuda
