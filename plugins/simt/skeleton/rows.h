// What the host passes to a kernel of rows, the same for every operator (rows.cuh).
#pragma once

#include "../args.h"
#include "map.h"

namespace rlk::simt {

constexpr int kRowTensors = 18;  // arguments of an operator, in the order in which its file names them
constexpr int kRowNumbers = 16;
constexpr int kRowThreads = 256;      // of a block where a wave has a row, and the most where a block has one
constexpr int kRowMostThreads = 512;  // of a block that has a row, where its operator has sums over rows
constexpr int kRowSumThreads = 128;   // of a block that sums packs of columns over a chunk of rows
constexpr int kRowTotalColumns = 16;  // of a block of kRowThreads that sums chunks
constexpr int kRowAllThreads = 512;   // of the block that has all rows
constexpr int kRowKeptOnce = 4;       // numbers of the call that one kernel leaves the other
constexpr int kRowSmallestWave = 32;  // of any device

// Packs of 16 bytes that a thread keeps of each matrix and vector that it reads: more hide the memory's latency and
// share the cost of a sum over threads, and take registers.
constexpr int row_held(int matrices, int vectors) {
  return matrices + vectors <= 1 ? 8 : 4;
}
// Where there are sums over rows, a thread has those of the columns that it keeps in registers too, but for fp64.
constexpr int kRowSumColumns = 16;
constexpr int row_held_for_sums(int bytes) {
  return bytes == 8 ? 4 : kRowSumColumns * bytes / 16;
}
// Neighbouring packs whose sums of one column each are neighbours in memory, as their threads are.
constexpr int kRowPartPacks = 32;
// By a thread of less than a wave, whose accesses to memory reach over several rows.
constexpr int kRowHeldInWave = 4;

struct RowTensor {
  void* data;           // nullptr: absent
  int64_t outer;        // strides in elements: of blocks of rows (RowArgs::inner),
  int64_t row, column;  // of rows in a block and of columns; 0: repeated
  int32_t dtype;        // as MapTensor's
  int32_t in_packs;     // a pack begins at a multiple of 16 bytes and its numbers are neighbours
};

// What every kernel reads is in front: a small launch waits for each part of its arguments that it reads.
struct RowArgs {
  int64_t rows, columns;
  double share;              // of a column in a mean: 1 / columns
  int32_t dtype;             // of the matrices
  int32_t in_packs;          // all matrices are
  int32_t group;             // threads of a row: a part of a wave, a wave or a block
  int32_t group_bits;        // it is 1 << group_bits
  int32_t vectors_in_packs;  // those that are there, and are of the matrices' dtype
  int32_t chunk_threads;     // of a block that sums rows: they have a chunk's columns
  int64_t inner, blocks;     // rows of a block of rows, and how many blocks there are
  RowTensor tensor[kRowTensors];
  double number[kRowNumbers];  // the operator's parameters, or what the host made of them
  int64_t chunks, chunk_rows;  // of sums over rows
  double* part;                // of each chunk and each sum, part_columns numbers
  int64_t part_columns;        // the columns of whole kRowPartPacks packs
  DataErrorSink errors;
};

}  // namespace rlk::simt
