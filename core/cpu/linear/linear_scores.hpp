// The scores of a block of the vocabulary, row by row: for losses that look at those of two models side by side.
// Internal to the kernels.
#pragma once

#include <cstddef>

#include "core/cpu/linear/linear_operands.hpp"

namespace rlk::cpu {

// Some tiles of rows, at most kLinearTilesPerTask, against columns [column, column + kLinearBlock) of the vocabulary,
// or as many as there are.
struct LinearScoreBlock {
  const LinearOperands& operands;
  const LinearBatch& batch;
  int64_t first_tile, last_tile;
  int64_t column;

  int64_t columns() const { return std::min(kLinearBlock, operands.vocab - column); }
};

// Writes the products, with the bias, to scores[row of the tiles][kLinearBlock]. scratch: linear_scores_scratch bytes.
void linear_scores(const LinearScoreBlock& block, void* scratch, double* scores);
size_t linear_scores_scratch(bool in_f64);

}  // namespace rlk::cpu
