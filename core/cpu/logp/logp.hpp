// The log-probability of one chosen token per row, its log-sum-exp and entropy, in one pass over the logits.
//
// Cost model: every logit is read from memory once; the arithmetic (about 16 vector instructions per vector of logits)
// hides behind that. Rows are cut into blocks of kLogpBlock columns whose partial sums are combined in column order, so
// a row's bits are a function of the row, its options and V alone: batch_invariant and deterministic. With few rows the
// blocks of one row go to several threads; the combination is the same.
#pragma once

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

constexpr int64_t kLogpBlock = 4096;  // columns: 16 KiB of fp32, half of the smallest usual L1

// Which rows there are and which of them count: shared by logp and its backward.
struct LogpRows {
  int64_t n = 0;            // output rows
  int64_t logits_rows = 0;  // R
  int64_t vocab = 0;        // V
  const void* ids = nullptr;
  bool ids_are_i64 = true;
  int64_t ids_stride = 1;
  const uint8_t* mask = nullptr;  // optional
  int64_t mask_stride = 1;
  const int64_t* row_indices = nullptr;  // optional
  int64_t row_indices_stride = 1;
  int64_t ignore_index = -100;
  int64_t vocab_start = 0;
  int64_t global_vocab = 0;  // 0: V

  int64_t id(int64_t row) const {
    return ids_are_i64 ? static_cast<const int64_t*>(ids)[row * ids_stride]
                       : static_cast<const int32_t*>(ids)[row * ids_stride];
  }
  bool ignored(int64_t row) const {
    return (mask != nullptr && mask[row * mask_stride] == 0) || id(row) == ignore_index;
  }
  // The logits row of an active row; may be out of range.
  int64_t logits_row(int64_t row) const { return row_indices != nullptr ? row_indices[row * row_indices_stride] : row; }
  bool whole_vocabulary() const { return global_vocab <= 0 || global_vocab == vocab; }
  // The data error of an active row that shows without its logits; kind 0 when there is none.
  DataError error(int64_t row) const;
};

struct LogpArgs {
  LogpRows rows;
  Dtype dtype = Dtype::f32;  // of logits and bias
  const void* logits = nullptr;
  int64_t row_stride = 0, col_stride = 1;
  const void* bias = nullptr;  // optional, [V]
  int64_t bias_stride = 1;
  void* logp = nullptr;
  Dtype logp_dtype = Dtype::f32;  // dtype or accumulator(dtype)
  int64_t logp_stride = 1;
  void* lse = nullptr;  // optional, accumulator(dtype)
  int64_t lse_stride = 1;
  void* entropy = nullptr;  // optional, accumulator(dtype)
  int64_t entropy_stride = 1;
  double temperature = 1.0;
  double softcap = 0.0;
  void* workspace = nullptr;  // logp_workspace_bytes, aligned to 8 bytes
};

int64_t logp_workspace_bytes(int64_t n, int64_t vocab);

// Returns the data error of the lowest bad row; kind 0 when there is none.
DataError logp(const LogpArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
