// aclnnFusedInferAttentionScoreV3 as one step: what it takes of every operator that is computed with it.
#pragma once

#include "plan.hpp"

namespace rlk::ascend {

constexpr int64_t kNoLimit = std::numeric_limits<int32_t>::max();  // of preTokens and nextTokens
constexpr int64_t kMaskSize = 2048;                                // of the compressed causal mask

// sparseMode of the vendor.
constexpr int64_t kEverything = 0;  // no mask
constexpr int64_t kCausal = 3;      // aligned at the lower right corner
constexpr int64_t kBand = 4;        // preTokens and nextTokens around the diagonal that ends there

struct FusedAttention {
  int64_t heads, kv_heads;
  double scale;
  bool packed = false;  // "TND", with the ends of the sequences; else "BSND"
  Dims q_ends = {}, k_lengths = {};
  int64_t sparse_mode = kEverything, before = kNoLimit, after = kNoLimit;
  int64_t block_size = 0;  // of paged keys and values, [blocks, block_size, kv_heads D]; k_lengths are then lengths
  Operand q = {}, k = {}, v = {}, out = {};
  Operand mask = Operand::absent();
  Operand block_table = Operand::absent();  // INT32 [batch, blocks of a sequence]; every entry is a block
  Operand lse = Operand::absent();          // packed: [tokens, heads, 1]; else [batch, heads, queries, 1]
};
void add_fused_attention(Builder& b, const FusedAttention& call);

// Reasons to decline that its operators share.
struct FusedAttentionLimits {
  const rlk_tensor* q;
  int64_t heads, kv_heads, head_size;
  double scale, softcap;
};
sdk::Refusal decline_fused_attention(const Device& device, const FusedAttentionLimits& limits);

// Host values of an input, all of them in row-major order.
Dims host_values(const sdk::Run& run, uint32_t index);

}  // namespace rlk::ascend
