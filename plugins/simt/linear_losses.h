// What the host passes to the kernels of losses whose scores are products (linear_losses.cuh).
#pragma once

#include "args.h"

namespace rlk::simt {

constexpr int kLinearLossThreads = 256;
constexpr int kLinearLossTerms = 6;

// What is done of all rows of a cross entropy, by one block. Numbers are accumulators but for ids and mask.
struct LinearLossArgs {
  uint64_t terms[kLinearLossTerms];  // the bytes of formula::CrossEntropyTerms
  const void* ids;
  const uint8_t* mask;          // nullptr: every row
  const void* class_weight;     // [vocab]; nullptr: 1
  const void* entropy;          // [rows]: the loss of each row without the square of its lse
  const void* lse;              // [rows]
  const void* grad_loss;        // [1]; nullptr: 1
  const void* grad_token_loss;  // [rows]; nullptr: 0
  void* token_loss;             // [rows]; nullptr: not wanted; of gradients: what reaches each row
  void* loss;                   // [1]
  void* z_loss;                 // [1]; nullptr: not wanted
  int64_t rows, vocab;
  int32_t ids_are_i64;
  int32_t reserved;
};

}  // namespace rlk::simt
