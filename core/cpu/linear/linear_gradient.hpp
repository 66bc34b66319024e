// Tasks of the backwards of losses whose scores are products, compiled for every instruction set. Internal to the
// kernels.
#pragma once

#include "core/cpu/linear/linear_operands.hpp"
#include "core/cpu/logp/logp_backward_block.hpp"

namespace rlk::cpu {

// Vocabulary entries of grad_weight per task: its rows of hidden are packed once for all of them.
constexpr int64_t kGradientColumns = 2 * kLinearBlock;

// A batch of rows against a chunk of the vocabulary.
struct LinearChunk {
  const LinearOperands& operands;
  const LinearBatch& batch;
  int64_t begin, end;   // of the vocabulary; begin is a multiple of kLinearBlock
  int64_t room;         // columns of a tile of dx: a multiple of kLinearBlock, at least end - begin
  void* dx;             // [tile][column][row] of the compute type, linear_chunk_elements
  double* grad_hidden;  // [tile][d][row], the sums so far, linear_sums_elements
};
int64_t linear_chunk_elements(int64_t count, int64_t room, bool in_f64);
int64_t linear_sums_elements(int64_t count, int64_t depth, bool in_f64);

// The rows of a batch, of the gradients that log-probabilities have.
struct LogpRows {
  const RowGradient* gradients;  // [batch.count]; the weights of their scores are those of the first
  uint8_t* seen;                 // [batch.count]: set where an x is not -inf
};
// dx of the block of columns at `column` for the tiles [first_tile, last_tile). False without memory for scratch, like
// the next two.
bool linear_gradient_scores(const LinearChunk& chunk, const LogpRows& rows, int64_t first_tile, int64_t last_tile,
                            int64_t column);
// Or dx of one row of the batch, computed elsewhere: values of the block of columns at `column`. Every row of the batch
// must be written.
void linear_gradient_put(const LinearChunk& chunk, int64_t row, int64_t column, const double* values);
// Adds dx weight of the whole chunk to grad_hidden, from `depth` on kLinearDepth numbers of each row.
bool linear_gradient_hidden(const LinearChunk& chunk, int64_t first_tile, int64_t last_tile, int64_t depth);

// Entries [column, column + kGradientColumns) of the chunk and a tile's width of numbers from `depth` on: sums over the
// batch's rows, written when `is_first` and added otherwise.
bool linear_gradient_weight(const LinearChunk& chunk, int64_t column, int64_t depth, const Array& grad, bool is_first);
// sums[v] += the sum over the batch's rows of dx[v], for the block of columns at `column`; sums is over the vocabulary.
void linear_gradient_bias(const LinearChunk& chunk, int64_t column, double* sums);

// Writes the sums of one row.
void linear_gradient_store(const LinearChunk& chunk, int64_t row, const Array& grad);

}  // namespace rlk::cpu
