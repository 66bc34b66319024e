// The tiles of the gradients of attention on warpgroup products: their shapes, and the warpgroup that copies them into
// shared memory.
#pragma once

#include "attention_gradients_wgmma_options.cuh"
#include "wgmma.cuh"

namespace rlk::cuda_kernels {

template <int kPadded, int kStages = 2>
struct GradientShape : cuda::GradientWgmmaShared<kPadded, kStages> {
  static constexpr bool kAhead = kStages > 2;  // the products of the next tile are under way beside those of one
  static constexpr bool kSplitsColumns = kPadded > 128;  // of the gradients between the warpgroups, not keys
  static constexpr int kBlockKeys = cuda::gradient_wgmma_keys(kPadded), kPanels = kPadded / 64;
  static constexpr int kSums = cuda::gradient_wgmma_sums(kPadded);
  static constexpr int kKeyPanel = 128 * kBlockKeys, kQueryPanel = 128 * cuda::kGradientWgmmaQueries;  // bytes
  // To the second warpgroup's keys in all panels, and to its columns.
  static constexpr int kToKeys = kSplitsColumns ? 0 : 64 * 128, kToColumns = kSplitsColumns ? 2 : 0;  // bytes; panels
  // Of grad_k and grad_v that a warpgroup has.
  static constexpr int kOwnPanels = kPadded == 64 ? 1 : 2, kOwnColumns = 64 * kOwnPanels;
  // Of grad_q that a warpgroup computes: parts, columns of each, and bytes to the second warpgroup's.
  static constexpr int kQueryParts = kPadded == 256 ? 2 : 1, kQueryColumns = kPadded == 64 ? 32 : 64;
  static constexpr int kToQueryColumns = kPadded == 64 ? 2 * kQueryColumns : kQueryParts * kKeyPanel;
};

// d (+)= A^T B, the rows of both the inner dimension, in shared memory: 64 x 64 x 16, or 64 x 32 x 16.
template <class T>
__device__ __forceinline__ void multiply_down(float (&d)[32], uint64_t a, uint64_t b, int add);
template <class T>
__device__ __forceinline__ void multiply_down(float (&d)[16], uint64_t a, uint64_t b, int add);
#define RLK_WGMMA_DOWN(TYPE, NAME)                                                                                    \
  template <>                                                                                                         \
  __device__ __forceinline__ void multiply_down<TYPE>(float(&d)[32], uint64_t a, uint64_t b, int add) {               \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." NAME     \
                 "." NAME " {" RLK_WGMMA_NAMES_32 "}, %32, %33, add, 1, 1, 1, 1;\n}\n"                                \
                 : RLK_WGMMA_32                                                                                       \
                 : "l"(a), "l"(b), "r"(add));                                                                         \
  }                                                                                                                   \
  template <>                                                                                                         \
  __device__ __forceinline__ void multiply_down<TYPE>(float(&d)[16], uint64_t a, uint64_t b, int add) {               \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32." NAME     \
                 "." NAME " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, add, 1, 1, 1, 1;\n}\n" \
                 : RLK_WGMMA_8(0), RLK_WGMMA_8(8)                                                                     \
                 : "l"(a), "l"(b), "r"(add));                                                                         \
  }
RLK_WGMMA_DOWN(bf16, "bf16")
RLK_WGMMA_DOWN(f16, "f16")

__device__ __forceinline__ void copy_floats(uint32_t to, const float* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ float2 load_pair(uint32_t at) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
  return v;
}

// The tiles of queries that see any key of a block; none: last < first.
struct QueryTiles {
  int first, last;
};
template <class Args>
__device__ __forceinline__ QueryTiles query_tiles(const Args& args, const KeyBlock& block, int block_keys) {
  const int last_key = min(block.first_key + block_keys, block.keys) - 1;
  const int low = max(0, block.first_key - block.diagonal - args.window_right);
  const int high = min(block.queries - 1, last_key - block.diagonal + args.window_left);
  if (high < low) return {0, -1};
  return {low / cuda::kGradientWgmmaQueries, high / cuda::kGradientWgmmaQueries};
}

// A block's barriers: of the keys and values, then of the rings of queries and of grad_out.
template <int kStages>
struct GradientBarriers {
  uint32_t at;
  __device__ __forceinline__ uint32_t keys() const { return at; }
  __device__ __forceinline__ uint32_t queries() const { return at + 8; }
  __device__ __forceinline__ uint32_t grad_out() const { return at + 8 + 16 * kStages; }
  __device__ __forceinline__ void init() const {
    constexpr int kReaders = 8;  // warps
    barrier_init(keys(), 1);
    for (int i = 0; i < kStages; ++i) {
      for (const uint32_t ring : {queries(), grad_out()}) {
        barrier_init(ring + 8 * i, 1);
        barrier_init(ring + 8 * (kStages + i), kReaders);
      }
    }
  }
};

constexpr int kStepBytes = 16 * 128;  // 16 rows of a panel

// One thread's work: every copy in.
template <class G, class Args>
__device__ __forceinline__ void copy_tiles(const Args& args, uint32_t shared,
                                           const GradientBarriers<G::kStages>& barriers, const KeyBlock& block,
                                           const QueryTiles& tiles) {
  if constexpr (kHasGradientOptions<Args>) {
    if (block.maps != nullptr) {
      for (int i = kMapQ; i <= kMapV; ++i) read_sequence_map(block.maps + i);
    }
  }
  const cuda::TensorMap &k_map = map_of<Args>(block, args.k, kMapK), &v_map = map_of<Args>(block, args.v, kMapV);
  const cuda::TensorMap& q_map = map_of<Args>(block, args.q, kMapQ);
  const cuda::TensorMap& grad_out_map = map_of<Args>(block, args.grad_out, kMapGradOut);
  RingPlace<G::kStages> queries(barriers.queries(), 1), grad_out(barriers.grad_out(), 1);
  barrier_expect(barriers.keys(), 2 * G::kKeyBytes);
  for (int p = 0; p < G::kPanels; ++p) {
    copy_panel(shared + G::kKeys + p * G::kKeyPanel, k_map, 64 * p, block.kv_head, block.first_key, block.sequence,
               barriers.keys());
    copy_panel(shared + G::kValues + p * G::kKeyPanel, v_map, 64 * p, block.kv_head, block.first_key, block.sequence,
               barriers.keys());
  }
  // A tile and a term of each of its queries.
  const auto load = [&](RingPlace<G::kStages>& ring, const cuda::TensorMap& map, int at, int terms_at,
                        const float* terms, int head, int token) {
    const uint32_t full = ring.full_barrier();
    barrier_wait(ring.empty_barrier(), ring.parity);
    barrier_expect(full, G::kQueryBytes + G::kTermBytes);
    for (int p = 0; p < G::kPanels; ++p) {
      copy_panel(shared + at + ring.stage * G::kQueryBytes + p * G::kQueryPanel, map, 64 * p, head, token,
                 block.sequence, full);
    }
    copy_floats(shared + terms_at + ring.stage * G::kTermBytes, terms, G::kTermBytes, full);
    ring.advance();
  };
  const int group = args.q_heads / args.kv_heads;
  for (int head = block.kv_head * group; head < (block.kv_head + 1) * group; ++head) {
    const int64_t row =
        ((static_cast<int64_t>(block.sequence) * args.q_heads + head) * args.query_tiles + block.first_tile) *
        cuda::kGradientWgmmaQueries;
    for (int m = tiles.first; m <= tiles.last; ++m) {
      const int token = m * cuda::kGradientWgmmaQueries;
      load(queries, q_map, G::kQueries, G::kLse, args.lse + row + token, head, token);
      load(grad_out, grad_out_map, G::kGradOut, G::kOffset, args.offset + row + token, head, token);
    }
  }
}

}  // namespace rlk::cuda_kernels
