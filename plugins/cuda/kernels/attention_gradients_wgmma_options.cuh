// What the gradients of attention on warpgroup products have for packed sequences, softcaps and key masks; and which
// keys and queries are a block's.
#pragma once

#include "../../simt/attention_gradient_sides.cuh"
#include "attention_gradients_wgmma.h"
#include "attention_wgmma_options.cuh"

namespace rlk::cuda_kernels {

using cuda::AttentionGradientOptionsWgmmaArgs;
using cuda::AttentionGradientWgmmaArgs;

template <class Args>
constexpr bool kHasGradientOptions = std::is_same_v<Args, AttentionGradientOptionsWgmmaArgs>;

template <class Args>
__device__ __forceinline__ bool is_packed(const Args& args) {
  if constexpr (kHasGradientOptions<Args>) return args.maps != nullptr;
  return false;
}

// The maps of a sequence, one behind the other.
enum GradientMap { kMapQ, kMapGradOut, kMapK, kMapV, kMapGradK, kMapGradV };
static_assert(kMapGradV + 1 == cuda::kGradientWgmmaSequenceMaps, "as many as there is room for");

// The keys of a block, and of which sequence they are. Packed: `sequence` is 0, as in the sequence's maps.
struct KeyBlock {
  int kv_head, sequence, first_key;  // first_key -1: there is no such block
  int queries, keys, diagonal;       // of the sequence
  int first_tile;                    // of queries, in the sums of its head
  const SequenceMap* maps;           // of the sequence, nullptr: dense
};

// plan[found] <= tile < plan[found + 1]
__device__ __forceinline__ int find_sequence(const int64_t* plan, int sequences, int64_t tile) {
  int low = 0, high = sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (plan[middle] <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ KeyBlock packed_key_block(const AttentionGradientOptionsWgmmaArgs& args, int block_keys) {
  KeyBlock block{};
  block.first_key = -1;
  const int tile = static_cast<int>(blockIdx.x) / args.kv_heads;
  const int64_t* const plan = args.call.key_plan;
  if (tile >= plan[args.sequences]) return block;
  const bool is_i64 = args.call.cu_are_i64 != 0;
  // Of one lane: the compiler must know that a warp's lanes take the same loops, or it serializes the products.
  const int found = simt::wave_read(find_sequence(plan, args.sequences, tile), 0);
  const auto count = [&](const void* cu) {
    return simt::wave_read(static_cast<int>(packed_span(cu, found, is_i64).count), 0);
  };
  block.kv_head = static_cast<int>(blockIdx.x) % args.kv_heads;
  block.first_key = simt::wave_read(tile - static_cast<int>(plan[found]), 0) * block_keys;
  block.queries = count(args.call.cu_q);
  block.keys = count(args.call.cu_k);
  block.diagonal = args.call.top_left != 0 ? 0 : block.keys - block.queries;
  block.first_tile = simt::wave_read(static_cast<int>(args.call.row_plan[found]), 0);
  block.maps = args.maps + static_cast<int64_t>(found) * cuda::kGradientWgmmaSequenceMaps;
  return block;
}
template <class Args>
__device__ __forceinline__ KeyBlock key_block(const Args& args, int block_keys) {
  if constexpr (kHasGradientOptions<Args>) {
    if (is_packed(args)) return packed_key_block(args, block_keys);
  }
  // Sequence after sequence: the L2 cache then holds the sums of grad_q that blocks add to. The first keys, which most
  // queries see where causality halves the work, come first.
  const int tiles = (args.keys + block_keys - 1) / block_keys, at = static_cast<int>(blockIdx.x) / args.kv_heads;
  return {static_cast<int>(blockIdx.x) % args.kv_heads,
          at / tiles,
          at % tiles * block_keys,
          args.queries,
          args.keys,
          args.diagonal,
          0,
          nullptr};
}
// The map of a whole tensor, or of the block's sequence.
template <class Args>
__device__ __forceinline__ const cuda::TensorMap& map_of(const KeyBlock& block, const cuda::TensorMap& whole,
                                                         int which) {
  if constexpr (kHasGradientOptions<Args>) {
    if (block.maps != nullptr) return block.maps[which].map;
  }
  return whole;
}

// A tile of queries: whose they are, as in KeyBlock.
struct QueryTile {
  int64_t sequence, head, token;  // token: of the tensor, the tile's first, within a dense sequence
  int64_t count;                  // of the sequence, from there on; below 1: there is no such tile
};
// at: as in the sums.
template <class Args>
__device__ __forceinline__ QueryTile query_tile(const Args& args, int64_t at) {
  const int64_t tile = at % args.query_tiles, head = at / args.query_tiles % args.q_heads;
  const int64_t sequence = at / args.query_tiles / args.q_heads;
  if constexpr (kHasGradientOptions<Args>) {
    if (is_packed(args)) {
      const int64_t* const plan = args.call.row_plan;
      if (tile >= plan[args.sequences]) return {0, head, 0, 0};
      const int found = find_sequence(plan, args.sequences, tile);
      const PackedSpan span = packed_span(args.call.cu_q, found, args.call.cu_are_i64 != 0);
      const int64_t first = (tile - plan[found]) * cuda::kGradientWgmmaQueries;
      return {0, head, span.first + first, span.count - first};
    }
  }
  const int64_t first = tile * cuda::kGradientWgmmaQueries;
  return {sequence, head, first, args.queries - first};
}

// One block, before the others: both plans, and the maps of each sequence.
__device__ __forceinline__ void attention_gradients_wgmma_plan(const AttentionGradientOptionsWgmmaArgs& args) {
  const simt::AttentionGradientArgs& call = args.call;
  simt::AttentionArgs cut{};
  cut.cu_q = call.cu_q;
  cut.cu_k = call.cu_k;
  cut.cu_are_i64 = call.cu_are_i64;
  cut.sequences = call.batches;
  cut.queries = call.queries;
  cut.keys = call.keys;
  cut.group = 1;
  cut.block_rows = cuda::kGradientWgmmaQueries;
  cut.plan = args.row_plan;
  cut.errors = args.errors;
  simt::attention_plan(cut);
  cut.cu_q = call.cu_k;
  cut.cu_k = call.cu_q;
  cut.queries = call.keys;
  cut.keys = call.queries;
  cut.block_rows = args.block_keys;
  cut.plan = args.key_plan;
  cut.errors = {};  // the first one reports
  simt::attention_plan(cut);
  if (args.row_plan[args.sequences + 1] != 0) return;
  const bool is_i64 = call.cu_are_i64 != 0;
  for (int64_t b = threadIdx.x; b < args.sequences; b += simt::kPlanThreads) {
    const PackedSpan queries = packed_span(call.cu_q, b, is_i64), keys = packed_span(call.cu_k, b, is_i64);
    SequenceMap* const to = args.maps + b * cuda::kGradientWgmmaSequenceMaps;
    const auto make = [&](int which, const cuda::TensorMap& whole, const simt::SampleTensor& tensor,
                          const PackedSpan& span) {
      make_sequence_map(to + which, whole, tensor.data, tensor.token_stride, span.first, span.count);
    };
    make(kMapQ, args.q, call.q, queries);
    make(kMapGradOut, args.grad_out, call.grad_out, queries);
    make(kMapK, args.k, call.k, keys);
    make(kMapV, args.v, call.v, keys);
    make(kMapGradK, args.grad_k, call.grad_k, keys);
    make(kMapGradV, args.grad_v, call.grad_v, keys);
  }
}

}  // namespace rlk::cuda_kernels
