// What the operators that scan sequences from their end share.
#pragma once

#include "core/cpu/advantages/reverse_scan.hpp"
#include "core/cpu/plugin/arrays.hpp"

namespace rlk::cpu {

// Lengths of packed sequences are not known before the call: one of them may be all tokens.
inline uint64_t scan_workspace_bytes(const rlk_tensor& tokens, const rlk_tensor* cu_seqlens) {
  const Sequences sequences = sequences_of(tokens, cu_seqlens);
  const int64_t total = static_cast<int64_t>(sdk::element_count(tokens));
  return static_cast<uint64_t>(reverse_scan_workspace_bytes(sequences.count, sequences.length, total));
}

}  // namespace rlk::cpu
