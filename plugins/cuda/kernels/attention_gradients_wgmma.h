// What the host passes to attention_gradients_wgmma.cuh.
#pragma once

#include "../../simt/attention_samples.h"
#include "attention_wgmma.h"

namespace rlk::cuda {

constexpr int kGradientWgmmaMostHead = 256;
constexpr int kGradientWgmmaQueries = 64;   // of a tile
constexpr int kGradientWgmmaTermHeads = 4;  // whose terms a block computes

// The head size of the kernels that compute this one.
constexpr int gradient_wgmma_padded(int64_t head) {
  return head <= 64 ? 64 : head <= 128 ? 128 : 256;
}
constexpr int gradient_wgmma_keys(int padded) {  // of a block
  return padded <= 128 ? 128 : 64;
}
constexpr int gradient_wgmma_sums(int padded) {  // of a tile of queries
  return kGradientWgmmaQueries * padded;
}

// Where a block's shared memory has what, in bytes.
template <int kPadded, int kStages_ = 2>
struct GradientWgmmaShared {
  static constexpr int kStages = kStages_;
  static constexpr int kKeyBytes = 2 * gradient_wgmma_keys(kPadded) * kPadded;
  static constexpr int kQueryBytes = 2 * kGradientWgmmaQueries * kPadded;
  // Score gradients of 64 keys and the queries, for either warpgroup.
  static constexpr int kWeightBytes = 2 * 2 * 64 * kGradientWgmmaQueries;
  static constexpr int kTermBytes = 4 * kGradientWgmmaQueries;
  static constexpr int kKeys = 0, kValues = kKeyBytes, kQueries = 2 * kKeyBytes;
  static constexpr int kGradOut = kQueries + kStages * kQueryBytes;
  static constexpr int kWeights = kGradOut + kStages * kQueryBytes;  // two
  static constexpr int kLse = kWeights + 2 * kWeightBytes, kOffset = kLse + kStages * kTermBytes;
  static constexpr int kBarriers = kOffset + kStages * kTermBytes;
  static constexpr int kBytes = kBarriers + 8 * (1 + 4 * kStages) + 1024;  // 1024: to align
  static_assert(kBytes <= 232448, "what a block can have");
};
// Of heads up to 64 without options.
constexpr int kGradientWgmmaAheadStages = 3;
constexpr int gradient_wgmma_shared_bytes(int padded) {
  return padded == 64    ? GradientWgmmaShared<64, kGradientWgmmaAheadStages>::kBytes
         : padded == 128 ? GradientWgmmaShared<128>::kBytes
                         : GradientWgmmaShared<256>::kBytes;
}

struct AttentionGradientWgmmaArgs {
  TensorMap q, grad_out, k, v, grad_k, grad_v;  // columns, heads, tokens, sequences
  simt::SampleTensor out, grad_out_rows, lse_rows, grad_lse, grad_q;
  // [sequences, q_heads, query_tiles, kGradientWgmmaQueries]: lse in powers of 2, +inf for a query that sees no key or
  // does not exist; grad_lse - sum over d of grad_out out.
  float *lse, *offset;
  // [sequences, q_heads, query_tiles, gradient_wgmma_sums] of grad_q without scale, in the order of the products'
  // registers: 64 columns, 8 columns, thread, element.
  float* sums;
  int32_t sequences, queries, keys, q_heads, kv_heads, head_size, query_tiles;
  int32_t diagonal, window_left, window_right;  // as in AttentionWgmmaArgs
  float scale_log2, scale;
};

// The same with packed sequences, a softcap or a key mask.
struct AttentionGradientOptionsWgmmaArgs : AttentionGradientWgmmaArgs {
  simt::AttentionGradientArgs call;  // with row_plan and key_plan of these kernels' tiles
  // Packed, all made by the kernel in front: of each sequence q, grad_out, k, v, grad_k and grad_v, which end where the
  // sequence ends (nullptr: dense), and the plans. The sums have one sequence, whose query_tiles are those of all.
  SequenceMap* maps;
  int64_t *row_plan, *key_plan;
  simt::DataErrorSink errors;
  int32_t block_keys;   // gradient_wgmma_keys
  float softcap_inner;  // what products are multiplied by under tanh; scale_log2 is of the result
};
constexpr int kGradientWgmmaSequenceMaps = 6;

}  // namespace rlk::cuda
