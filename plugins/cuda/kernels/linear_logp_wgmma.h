// What the host passes to linear_logp_wgmma.cuh, and the tiles that both agree on.
#pragma once

#include "attention_wgmma.h"

namespace rlk::cuda {

constexpr int kLinearRows = 128;     // of a tile of the scores, hidden states
constexpr int kLinearColumns = 192;  // entries of the vocabulary
constexpr int kLinearInner = 64;     // of the sum, at a time: a slab
constexpr int kLinearStages = 5;     // slabs of both operands that a block has room for
constexpr int kLinearChain = 8;      // slabs that are summed in the matrix units before fp32 takes them in
constexpr int kLinearThreads = 384;

constexpr int kLinearStageBytes = (kLinearRows + kLinearColumns) * kLinearInner * 2;
// Slabs begin at a multiple of 1024 bytes; behind them the barriers.
constexpr int kLinearSharedBytes = kLinearStages * kLinearStageBytes + 16 * kLinearStages + 1024;

constexpr int kLinearMergeThreads = 256;
constexpr int kLinearMergeRows = 8;  // of a block, neighbours in memory

struct LinearLogpWgmmaArgs {
  TensorMap hidden, weight;  // of slabs: columns of the sum, rows of the scores, entries of the vocabulary
  simt::TokenRows tokens;    // of this launch's rows
  simt::LogitTransform transform;
  // Of each tile of columns and each row of this launch: the largest y, the sum of exp((y - largest) / temperature)
  // and, with entropy, that of exp(d) d with d = (y - largest) / temperature * log2(e).
  float* top;                   // [column_tiles, rows]
  float* sum;                   // [column_tiles, rows]
  float* weighted;              // [column_tiles, rows], nullptr: not wanted
  float* target;                // [rows]: y of the target, of rows whose target is here
  void* logp;                   // [rows] of this launch, as all results
  float* lse;                   // nullptr: not wanted
  float* entropy;               // nullptr: not wanted
  int32_t* taken;               // tiles that blocks have taken, 0 before the launch
  int64_t first_row;            // of this launch, of data errors
  int32_t slabs, column_tiles;  // of a sum, of the vocabulary
  int32_t row_tiles;
  int32_t band_tiles;  // of rows, which share the weights while the cache holds both
  int32_t logp_is_accumulator;
  int32_t reserved;
  simt::DataErrorSink errors;
};

}  // namespace rlk::cuda
