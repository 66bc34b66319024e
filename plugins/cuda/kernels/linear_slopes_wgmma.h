// What the host passes to linear_slopes_wgmma.cuh.
#pragma once

#include "linear_logp_wgmma.h"

namespace rlk::cuda {

constexpr int kLinearSlopeRowThreads = 128;  // a block is a row's
constexpr int kLinearSlopePack = 8;          // slopes that a thread writes together; rows begin at a multiple of them

// A row's scalars (simt::RowScalars<float>), as the tiles read them.
struct alignas(16) LinearSlopeRow {
  float base, base_low_power, gain, entropy_gain;
  float target_gradient;
  int32_t state;   // kRow*
  int32_t target;  // column here, or -1
  int32_t reserved;
};

struct LinearSlopesWgmmaArgs {
  TensorMap hidden, weight;  // of slabs: columns of the sum, rows of the scores, entries of the vocabulary
  simt::TokenRows tokens;    // of this launch's rows
  simt::LogitTransform transform;
  float softcap, inverse_softcap;  // rounded; 0: none
  const void* hidden_rows;         // [rows, inner], dense
  const void* weight_rows;         // [V, inner]
  int64_t weight_stride;
  int64_t inner;
  const float* lse;  // [rows] of this launch, as all that follow
  const void* grad_logp;
  const float* grad_lse;      // nullptr: 0
  const float* grad_entropy;  // nullptr: 0
  const float* entropy;
  LinearSlopeRow* row;
  int32_t* taken;  // tiles that blocks have taken, 0 before the launch
  void* slopes;    // [rows, slopes_stride]
  int64_t slopes_stride;
  int64_t first_row;            // of this launch, of data errors
  int32_t slabs, column_tiles;  // of a sum, of the vocabulary
  int32_t row_tiles;
  int32_t band_tiles;  // of rows, which share the weights while the cache holds both
  int32_t grad_logp_is_accumulator;
  int32_t reserved;
  simt::DataErrorSink errors;
};

}  // namespace rlk::cuda
