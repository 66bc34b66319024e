// The recursion behind generalised advantage estimates and discounted returns, from the last active token of a sequence
// to its first:
//
//     a = reward + discount v' - value + decay a,   v' = value
//
// Within a sequence it is a linear scan, so a long sequence is cut into chunks that are worked at the same time. Chunks
// are counted from the last active token: bits do not depend on threads, on other sequences or on padding.
// Cost model: one pass over a short sequence; over the chunks of a long one two, and a few numbers per chunk serially.
#pragma once

#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

struct ReverseScanArgs {
  // What a masked token does: nothing; what a token with reward 0 and value 0 does; set a to 0.
  enum class MaskRule { carry, zero, reset } mask_rule = MaskRule::carry;
  Sequences sequences;
  Array rewards;
  Array values;       // optional: 0
  Array mask;         // optional
  Array start_value;  // optional, [sequences]: v' behind the last active token, else 0
  Array start_sum;    // optional, [sequences]: a behind the last active token, else 0
  double discount = 1, decay = 1;
  Array sums;                 // a of each token
  Array targets;              // optional: a + value
  void* workspace = nullptr;  // reverse_scan_workspace_bytes, aligned to 8 bytes
};

// For `sequences` sequences of at most `longest` tokens, `total` tokens together.
int64_t reverse_scan_workspace_bytes(int64_t sequences, int64_t longest, int64_t total);

// cu_seqlens have been checked.
void reverse_scan(const ReverseScanArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
