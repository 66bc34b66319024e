// What the host passes to prefix_attention.cuh and attention_gradients.cuh: attention of samples, whose keys are a
// prefix that all samples of a batch entry share, and their own. Without a prefix a batch entry is one sample, and a
// packed sequence is one too.
#pragma once

#include "args.h"
#include "tiling.h"

namespace rlk::simt {

// Strides are in elements, of a dimension that a tensor does not have 0. The head size dimension is contiguous.
struct SampleTensor {
  void* data;
  int64_t batch_stride, sample_stride, token_stride, head_stride;
};
// 0 hides a key. nullptr: none is hidden.
struct SampleMask {
  const uint8_t* data;
  int64_t batch_stride, sample_stride, key_stride;
};

struct SampleAttentionArgs {
  SampleTensor q, out, lse, k, v, prefix_k, prefix_v;
  SampleMask key_mask, prefix_mask;
  int64_t batches, samples;  // samples of each batch entry
  int64_t queries, keys;     // of each sample, or of all packed sequences; keys: its own
  int64_t prefix_keys;
  int64_t window_left, window_right;  // -1: all
  int64_t first_block;                // of this launch, when one grid cannot hold all blocks
  int32_t q_heads, kv_heads;
  int32_t group;  // q_heads / kv_heads
  int32_t head_size;
  int32_t top_left;     // query i stands at key i, else the last query at the last key
  int32_t key_columns;  // of the head size that the forward kernel holds in shared memory at a time
  double scale;
  double softcap;  // 0: none
};

// The gradients. A tile is kTile rows (query, head of the group) or keys, and kColumns of the head size: the block of a
// tile sums everything that goes there, in one order. A wider head takes several blocks, which compute its scores
// again.
constexpr int kGradientThreads = 256;
RLK_SIMT_BOTH constexpr int gradient_tile(int64_t accumulator_bytes) {
  return accumulator_bytes == 8 ? 32 : 64;
}
RLK_SIMT_BOTH constexpr int gradient_columns(int64_t accumulator_bytes) {
  return 2 * gradient_tile(accumulator_bytes);
}

// On tensor cores: of whole heads, padded, two tiles of each side and two of weights lie in shared memory.
RLK_SIMT_BOTH constexpr uint32_t gradient_mma_tile_bytes(int padded_head) {
  return static_cast<uint32_t>(2 * gradient_tile(4) * (padded_head + 8));
}
RLK_SIMT_BOTH constexpr int gradient_mma_shared_bytes(int padded_head) {
  return static_cast<int>(4 * gradient_mma_tile_bytes(padded_head)) + 2 * 2 * gradient_tile(4) * (gradient_tile(4) + 8);
}

struct AttentionGradientArgs : SampleAttentionArgs {
  SampleTensor grad_out, grad_lse, grad_q, grad_k, grad_v, grad_prefix_k, grad_prefix_v;
  void* terms;  // [batches * samples * queries, q_heads] of GradientTerms, which the first kernel leaves for the others
  const void* cu_q;  // packed: [sequences + 1]
  const void* cu_k;
  // Packed: [sequences + 2], the first tile of each sequence, their number, then 1 if the layout is bad.
  const int64_t* row_plan;
  const int64_t* key_plan;
  // Of a prefix: its tiles' sums of many rows are cut into parts of so many rows, whole tiles of them, which the last
  // kernel adds in order. Up to one part: a tile's block stores the gradients itself.
  int64_t parts, part_rows;
  void* part_sums;  // [batches, kv_heads, parts, 2 of keys and values, prefix_keys, head_size] accumulators
  int32_t packed;
  int32_t cu_are_i64;
  int32_t of_prefix;  // the keys whose gradients this launch makes are those of the prefix
  int32_t reserved;
};

template <class A>
struct GradientTerms {
  A lse;     // +inf for a query that sees no key: all its weights are 0
  A offset;  // grad_lse - sum over d of grad_out out
};

}  // namespace rlk::simt
