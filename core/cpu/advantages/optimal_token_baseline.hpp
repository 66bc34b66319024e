// Advantages of tokens over a baseline per position of their group. One number per token, in fp64.
//
// Cost model: two passes over the tokens to sum along sequences, one over their sums across the sequences of a group,
// some hundred positions at a time.
#pragma once

#include "core/cpu/advantages/groups.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

struct TokenBaselineArgs {
  Sequences sequences;
  IntArray group_ids;  // optional, [sequences]
  int64_t samples_per_prompt = 0;
  Array rewards, logp, sum_p2;
  Mask mask;     // optional
  Array weight;  // optional
  bool active_positions = false;
  bool zero_tail = false;
  double eps = 1e-8;
  Array advantages;
  Array returns;              // optional
  void* workspace = nullptr;  // token_baseline_workspace_bytes, aligned to 8 bytes
};

int64_t token_baseline_workspace_bytes(int64_t sequences, int64_t total, bool has_group_ids);

// Returns the data error of cu_seqlens, else that of the first sequence with a bad group id.
DataError optimal_token_baseline(const TokenBaselineArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
