// What the host passes to a kernel of scans, the same for every operator (scan.cuh).
#pragma once

#include "../args.h"
#include "grid_tensor.h"

namespace rlk::simt {

constexpr int kScanThreads = 256;
constexpr int kScanItems = 8;                          // tokens of a thread and step
constexpr int kScanChunk = kScanThreads * kScanItems;  // tokens, counted from the beginning of a sequence
constexpr int64_t kScanOwnCheck = 1024;                // sequences whose cu_seqlens every block checks itself

// What a masked token does: nothing; what a token with reward 0 and value 0 does; the sum becomes 0.
constexpr int32_t kScanCarry = 0;
constexpr int32_t kScanZero = 1;
constexpr int32_t kScanReset = 2;

// What a launch works on: rows, or chunks of them, of which it wants the links or the sums.
constexpr int32_t kScanRows = 0;
constexpr int32_t kScanTotals = 1;
constexpr int32_t kScanChunks = 2;

// What a chunk does to what comes in from behind.
struct ScanTotal {
  double factor, sum;
  int64_t power;
};
struct ScanArgs {
  int64_t rows;            // sequences
  int64_t length;          // tokens of each; packed: of all together
  int64_t chunks;          // by chunks: of each sequence; packed: places for all
  const void* cu_seqlens;  // nullptr: dense
  int64_t cu_stride;
  // Rows are sequences, columns their tokens; packed tokens are columns.
  GridTensor in, values, mask, start_value, start_sum;
  GridTensor out, targets;
  double discount;
  double decay;  // is decay_fraction 2^decay_power
  double decay_fraction;
  int64_t* bad;      // where the check of cu_seqlens left what it found; nullptr: every block checks
  ScanTotal* total;  // by chunks: of each
  int64_t* kept;     // by chunks, where a rule asks: of each the first token that counts, or -1
  int32_t decay_power;
  int32_t rule;
  int32_t dtype;  // of what is read
  int32_t cu_are_i64;
  int32_t waves;  // of a sequence: one, or all of a block
  int32_t packs;  // a thread's neighbours are whole packs of memory, in every tensor (scan_packs.cuh)
  int32_t form;   // kScan...
  DataErrorSink errors;
};

}  // namespace rlk::simt
