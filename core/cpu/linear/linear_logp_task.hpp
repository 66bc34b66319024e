// A task of linear_logp: some tiles of rows against a segment of the vocabulary. Internal to the kernels.
#pragma once

#include "core/cpu/linear/linear_operands.hpp"

namespace rlk::cpu {

struct LinearLogpTask {
  const LinearOperands& operands;
  const LinearBatch& batch;
  int64_t first_tile, last_tile;  // at most kLinearTilesPerTask
  int64_t begin, end;             // of the vocabulary; begin is a multiple of kLinearBlock
  Sums wanted;
  const int64_t* targets;  // [batch.count]: an entry of the vocabulary, or one outside
  BlockSums* sums;         // [batch.count] of this segment, sums_stride apart
  int64_t sums_stride;
  double* target_scores;  // [batch.count]: the capped score of the target, written by the segment that has it
  // Optional: [batch.count] of this segment, sums_stride apart: the sums of the capped scores, each times its weight.
  double* score_sums = nullptr;
  const Array* weights = nullptr;  // [V]; 1 without
};

// False when there is no memory for the thread's scratch.
bool linear_logp_task(const LinearLogpTask& task);

}  // namespace rlk::cpu
