// Scaled dot-product attention, forward, over dense batches or packed sequences.
//
// Cost model: 4 * D floating-point operations for every visible (query, key) pair, done as outer products of register
// tiles; K and V are read once for every tile of queries, and are what a few queries wait for. A tile's queries lie in
// the lanes of vectors, so maximum, sum and rescaling need no horizontal operations, and a row's bits depend on that
// row, its keys' positions in the sequence and the options alone: batch_invariant and deterministic. Scratch: up to 3
// MiB per thread.
#pragma once

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

// A [batch,] token, head, d tensor. batch is unused in the packed layout.
struct AttentionTensor {
  void* data = nullptr;
  int64_t batch_stride = 0, token_stride = 0, head_stride = 0, d_stride = 1;
};

struct AttentionArgs {
  Dtype dtype = Dtype::f32;
  AttentionTensor q, k, v;  // only read
  AttentionTensor out;
  AttentionTensor lse;  // accumulator(dtype), d_stride unused; data is null when not wanted
  bool packed = false;
  int64_t batch = 0;                   // sequences
  int64_t q_tokens = 0, k_tokens = 0;  // of each sequence (dense) or of all together (packed)
  const void* cu_seqlens_q = nullptr;  // packed: [batch + 1]
  const void* cu_seqlens_k = nullptr;
  bool cu_seqlens_are_i64 = false;
  int64_t cu_seqlens_q_stride = 1, cu_seqlens_k_stride = 1;
  int64_t q_heads = 1, kv_heads = 1;
  int64_t head_size = 1;  // D, 1 to 256
  bool causal = false;
  bool top_left = false;  // query i stands at key i, else the last query at the last key
  int64_t window_left = -1, window_right = -1;
  double scale = 0.0;                 // 0: 1 / sqrt(D)
  double softcap = 0.0;               // 0: none
  const uint8_t* key_mask = nullptr;  // dense: [batch, k_tokens], 0 hides the key; may be null
  int64_t key_mask_batch_stride = 0, key_mask_token_stride = 1;
  void* workspace = nullptr;  // attention_workspace_bytes, aligned to 8 bytes
};

int64_t attention_workspace_bytes(int64_t batch, bool packed);

enum class AttentionStatus { ok, out_of_memory };

// Returns out_of_memory when a thread could not have its scratch; the outputs are undefined then. Otherwise *error is
// the data error of cu_seqlens, or of kind 0.
AttentionStatus attention(const AttentionArgs& args, const ParallelFor& hook, DataError* error);

}  // namespace rlk::cpu
