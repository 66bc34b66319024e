// What the host passes to the kernels of paged attention (paged_attention.cuh), and how they cut their work.
#pragma once

#include "args.h"
#include "tiling.h"

namespace rlk::simt {

constexpr int kPagedThreads = 128;
constexpr int kPagedElements = 8;  // of a head that a lane holds
constexpr int kPagedMaxHead = 256;
constexpr int kPagedMaxSplits = kPagedThreads;  // paged_merge has a thread for each
// Rows (query, head of the group) of a block, and keys that a lane has in flight: what fits its registers.
RLK_SIMT_BOTH constexpr int paged_rows(int64_t element_bytes) {
  return element_bytes == 8 ? 2 : 4;
}
RLK_SIMT_BOTH constexpr int paged_keys(int64_t element_bytes) {
  return element_bytes == 8 ? 1 : element_bytes == 4 ? 2 : 3;
}
// Lanes that share a key: a power of 2.
RLK_SIMT_BOTH constexpr int paged_lanes(int64_t head_size) {
  return head_size <= int64_t{8} * kPagedElements ? 8 : head_size <= int64_t{16} * kPagedElements ? 16 : 32;
}

// Strides of a cache. A layout without groups has one of all elements.
struct PagedCache {
  void* data;
  int64_t block_stride, place_stride, head_stride, group_stride, element_stride;
  int64_t group;     // elements of one
  int32_t in_packs;  // 16 bytes of a head begin at a multiple of 16 and are contiguous
  int32_t reserved;
};

struct PagedAttentionArgs {
  const void* q;
  void* out;
  void* lse;  // nullptr: not wanted
  PagedCache k, v;
  const void* block_table;
  const void* context_lens;
  const void* cu_q;  // nullptr: a query of each sequence
  void* parts;       // with splits > 1: accumulators [splits, queries, q_heads, head_size], not divided by their sums
  void* part_sums;   // and [splits, queries, q_heads, 2]: the highest score in powers of 2, the sum of weights
  int64_t q_stride[2];
  int64_t out_stride[2];
  int64_t lse_stride[2];
  int64_t table_stride[2];
  int64_t lens_stride, cu_stride;
  int64_t sequences, queries, cache_blocks, table_blocks, block_size;
  int64_t window_left;  // -1: all
  int64_t window_right;
  int64_t tiles;                              // of rows, at most
  int64_t first_tile, part_tiles, tile_rows;  // where kernels take tiles in parts: those of this launch; rows of one
  int64_t first_block;                        // of this launch, when one grid cannot hold all blocks
  int32_t indices_are_i64;
  int32_t q_heads;
  int32_t kv_heads;
  int32_t group;  // q_heads / kv_heads
  int32_t head_size;
  int32_t lanes;                           // paged_lanes(head_size)
  int32_t splits;                          // of the keys of a row
  uint32_t block_multiplier, block_shift;  // map_divide's, by block_size
  int32_t fixed_shares;                    // not 0: shares begin at the same keys in each call; else they are equal
  double scale;
  double softcap;  // 0: none
  DataErrorSink errors;
};

}  // namespace rlk::simt
