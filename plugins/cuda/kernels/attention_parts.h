// What the host passes to attention_parts_mma.cuh.
#pragma once

#include "../../simt/attention_samples.h"

namespace rlk::cuda {

// Rows of a block: those of a few tokens, whose keys the warps share; or of as many as warps can have.
constexpr int kPartsFewRows = 16;
constexpr int kPartsMostSlots = 256;
constexpr int kPartsMergeWarps = 4;

struct AttentionPartsArgs : simt::SampleAttentionArgs {
  // [slots, batches * samples * queries * q_heads]: each part's weighted values, [head_size], and beside them what its
  // exponents have subtracted and the sum of its weights, as two numbers.
  float* parts;
  float* sums;
  int32_t slots, first_slot;  // first_slot: of this launch
  int32_t splits;             // of the keys of this launch
  int32_t of_prefix;          // the keys of this launch are those of the prefix
};

}  // namespace rlk::cuda
