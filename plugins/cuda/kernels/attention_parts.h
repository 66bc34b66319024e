// What the host passes to attention_parts_mma.cuh.
#pragma once

#include "../../simt/attention_samples.h"
#include "../../simt/tiling.h"

namespace rlk::cuda {

// Rows of a block: those of a few tokens, whose keys the warps share; or of as many as warps can have.
constexpr int kPartsFewRows = 16;
constexpr int kPartsMostSlots = 256;
constexpr int kPartsMergeWarps = 4;
// So many own keys of samples are taken in by the merge.
constexpr int kPartsMergeKeys = 32;
// Blocks of a multiprocessor at once. Two of few rows fetch keys as fast as memory sends them (measured on an H200,
// against three); fewer blocks make fewer parts.
constexpr int kPartsBlocks = 2;
// Of queries, and of two tiles of keys and of values, which lie there without gaps.
RLK_SIMT_BOTH constexpr int parts_shared_bytes(int padded_head, int block_rows) {
  return 2 * simt::attention_mma_stride(padded_head) * block_rows +
         2 * 4 * simt::attention_mma_keys(padded_head) * padded_head;
}
// The first key of a share whose place no call moves: shares have 1024 keys, 2048 from key 16384 on, 4096 from key
// 32768 on and 8192 from key 131072 on. Short sequences have enough of them to fill a device, long ones few to put
// together.
RLK_SIMT_BOTH constexpr int64_t fixed_share_begin(int64_t share) {
  const int64_t lines[] = {1024 * share, 2048 * share - 16384, 4096 * share - 65536, 8192 * share - 262144};
  int64_t begin = lines[0];
  for (int i = 1; i < 4; ++i) begin = begin > lines[i] ? begin : lines[i];
  return begin;
}
// The share that has a key.
RLK_SIMT_BOTH constexpr int64_t fixed_share_of(int64_t key) {
  const int64_t lines[] = {key / 1024, (key + 16384) / 2048, (key + 65536) / 4096, (key + 262144) / 8192};
  int64_t share = lines[0];
  for (int i = 1; i < 4; ++i) share = share < lines[i] ? share : lines[i];
  return share;
}
// A warp of a block of few rows has a quarter of a fixed share.
RLK_SIMT_BOTH constexpr int64_t fixed_quarter(int64_t share) {
  return (fixed_share_begin(share + 1) - fixed_share_begin(share)) / 4;
}

// Which share, and of which tile of rows, is the item-th to begin: the large shares of all tiles come first, and the
// large ones of the last tile do not run alone at the end. Those of 1024 keys come tile by tile: most of short
// sequences have no key, and those that have some would all come last.
constexpr int64_t kFixedSmallShares = 16;
struct FixedShareOfTile {
  int64_t share, tile;
};
RLK_SIMT_BOTH constexpr FixedShareOfTile fixed_share_at(int64_t item, int64_t shares, int64_t tiles) {
  const int64_t small = shares < kFixedSmallShares ? shares : kFixedSmallShares, of_large = (shares - small) * tiles;
  if (item < of_large) return {shares - 1 - item / tiles, item % tiles};
  return {small - 1 - (item - of_large) % small, (item - of_large) / small};
}

struct AttentionPartsArgs : simt::SampleAttentionArgs {
  // [slots, batches * samples * queries * q_heads]: each part's weighted values, [head_size], and beside them what its
  // exponents have subtracted and the sum of its weights, as two numbers.
  float* parts;
  float* sums;
  int32_t slots, first_slot;  // first_slot: of this launch
  int32_t splits;             // of the keys of this launch
  int32_t of_prefix;          // the keys of this launch are those of the prefix
  int32_t merges_own;         // the merge takes in the samples' own keys, of which there are few
  int32_t reserved;
};

}  // namespace rlk::cuda
