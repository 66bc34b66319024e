// The log-probability of one chosen token per row from hidden states, without the logits ever being stored.
//
// Cost model: 2 N V D floating-point operations, done as outer products of register tiles; the weights are read once
// for every kLinearBatch rows, and are what a few rows wait for. Ignored rows cost nothing. The vocabulary is cut into
// segments whose partial sums are combined in order, so a row's bits are a function of the row, its options, V and D
// alone: batch_invariant and deterministic. Tasks are tiles of rows times segments, so that one row keeps several
// threads busy. Scratch: below 512 KiB per thread.
#pragma once

#include "core/cpu/linear/linear_operands.hpp"
#include "core/cpu/logp/logp.hpp"

namespace rlk::cpu {

struct LinearLogpArgs {
  LogpRows rows;             // without row_indices; logits_rows is n
  Dtype dtype = Dtype::f32;  // of hidden, weight and bias
  int64_t depth = 0;         // D
  LinearMatrix hidden, weight;
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
  void* workspace = nullptr;  // linear_logp_workspace_bytes, aligned to 8 bytes
};

// What decides the size of a workspace.
struct LinearSizes {
  Dtype dtype = Dtype::f32;
  int64_t n = 0, vocab = 0, depth = 0;
  double temperature = 1.0, softcap = 0.0;
};
int64_t linear_logp_workspace_bytes(const LinearSizes& sizes);

enum class LinearStatus { ok, out_of_memory };

// Returns out_of_memory when a thread could not have its scratch; the outputs are undefined then. Otherwise *error is
// the data error of the lowest bad row, or of kind 0.
LinearStatus linear_logp(const LinearLogpArgs& args, const ParallelFor& hook, DataError* error);

}  // namespace rlk::cpu
