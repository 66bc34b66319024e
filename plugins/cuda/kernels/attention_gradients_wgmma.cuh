// The gradients of attention for 16-bit tensors on the warpgroup products of sm_90a, as FlashAttention-3 divides the
// work.
//
// A block owns 128 keys of one key head: a warpgroup that copies, and two of 64 keys each that keep grad_k and grad_v
// in registers while the queries of all heads of the group pass in tiles of 64. Weights and score gradients stay in
// registers as operands of the products for grad_v and grad_k; the score gradients of both warpgroups meet in shared
// memory for grad_q, of which each takes half of the columns. grad_k and grad_v have one order of summation. grad_q is
// summed over the blocks of keys by additions in memory, in the order in which blocks come: its last bits differ from
// run to run. Cost: five products of Lq Lk D, and 8 bytes of additions for each 128 keys and element of grad_q.
//
// Of heads up to 64 the columns of grad_q that a warpgroup takes are 32: half of a panel's lines of 128 bytes.
// Of heads above 128 a block owns 64 keys, and each warpgroup half of the columns of their gradients: registers and
// shared memory hold no more. Both compute the scores and their gradients: seven products instead of five, but nothing
// that they exchange.
#pragma once

#include "attention_gradients_wgmma_options.cuh"
#include "attention_gradients_wgmma_rows.cuh"
#include "wgmma.cuh"

namespace rlk::cuda_kernels {

template <int kPadded>
struct GradientShape : cuda::GradientWgmmaShared<kPadded> {
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
struct GradientBarriers {
  static constexpr int kStages = cuda::GradientWgmmaShared<128>::kStages;  // as many of all head sizes
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
__device__ __forceinline__ void copy_tiles(const Args& args, uint32_t shared, const GradientBarriers& barriers,
                                           const KeyBlock& block, const QueryTiles& tiles) {
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

template <class T, class G, bool kCap = false, class Args>
__device__ __forceinline__ void attention_gradients_wgmma(const Args& args) {
  if constexpr (kHasGradientOptions<Args>) {
    if (simt::fill_nan_if_bad<T>(args.call, false)) return;
  }
  const uint32_t shared = (shared_address(simt::dynamic_shared()) + 1023) & ~1023u;
  const GradientBarriers barriers{shared + G::kBarriers};
  if (threadIdx.x == 0) {
    barriers.init();
    barriers_ready();
  }
  __syncthreads();
  const KeyBlock block = key_block(args, G::kBlockKeys);
  if (is_packed(args) && block.first_key < 0) return;
  const int kv_head = block.kv_head, sequence = block.sequence, first_key = block.first_key;
  const int group = args.q_heads / args.kv_heads;
  const QueryTiles tiles = query_tiles(args, block, G::kBlockKeys);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
  if (warpgroup < 0) {
    give_registers<24>();  // 24 + 2 x 240 are the 3 x 168 of the launch
    if (threadIdx.x == 0) copy_tiles<G>(args, shared, barriers, block, tiles);
    return;
  }
  take_registers<240>();
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  RingPlace<G::kStages> q(barriers.queries(), 0), o(barriers.grad_out(), 0);
  float grad_k[G::kOwnColumns / 2], grad_v[G::kOwnColumns / 2];
#pragma unroll
  for (int i = 0; i < G::kOwnColumns / 2; ++i) grad_k[i] = grad_v[i] = 0.0f;
  const uint64_t k_rows = panel_descriptor(shared + G::kKeys + warpgroup * G::kToKeys, 0),
                 v_rows = panel_descriptor(shared + G::kValues + warpgroup * G::kToKeys, 0);
  const uint64_t k_down = panel_descriptor(shared + G::kKeys + warpgroup * G::kToQueryColumns, 0);
  const uint64_t q_rows = panel_descriptor(shared + G::kQueries, 0), o_rows = panel_descriptor(shared + G::kGradOut, 0);
  const int to_columns = warpgroup * G::kToColumns;  // panels
  const uint64_t q_down = panel_descriptor(shared + G::kQueries + to_columns * G::kQueryPanel, G::kQueryPanel),
                 o_down = panel_descriptor(shared + G::kGradOut + to_columns * G::kQueryPanel, G::kQueryPanel);
  const uint64_t s_down =
      panel_descriptor(shared + G::kWeights + (G::kSplitsColumns ? warpgroup * (G::kWeightBytes / 2) : 0), 0);
  const auto release = [&](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  const int block_key = first_key + (G::kSplitsColumns ? 0 : 64 * warpgroup);  // of the warpgroup
  const int my_key = block_key + row;                                          // and 8 on
  barrier_wait(barriers.keys(), 0);
  // Of keys that padding hides nothing is read but zeros, and nothing is left in their gradients.
  bool hidden[2] = {false, false}, any_hidden = false;
  if constexpr (kHasGradientOptions<Args>) {
    const simt::KeyMask mask = simt::key_mask_of(args.call.key_mask, sequence, 0);
    if (mask.data != nullptr) {
      const auto hides = [&](int key) { return key < block.keys && !simt::keeps_key(mask, key); };
      hidden[0] = hides(my_key);
      hidden[1] = hides(my_key + 8);
      any_hidden = simt::wave_ballot(hidden[0] || hidden[1]) != 0;
      if (thread < 64 && hides(block_key + thread)) {
        const uint32_t at = shared + warpgroup * G::kToKeys + to_columns * G::kKeyPanel + thread * 128;
        clear_row<G::kOwnPanels, G::kKeyPanel>(at + G::kKeys);
        clear_row<G::kOwnPanels, G::kKeyPanel>(at + G::kValues);
      }
      shared_stores_ready();
      named_wait<256>(1);
    }
  }
  int buffer = 0;
  for (int g = 0; g < group; ++g) {
    const int head = kv_head * group + g;
    float* sums =
        args.sums +
        ((static_cast<int64_t>(sequence) * args.q_heads + head) * args.query_tiles + block.first_tile) * G::kSums +
        warpgroup * (G::kSums / 2) + thread * 4;
    for (int m = tiles.first; m <= tiles.last; ++m) {
      float s[32], dp[32];
      barrier_wait(q.full_barrier(), q.parity);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4 * G::kPanels; ++k)
        WarpgroupProduct<T, 64>::multiply(
            s, operand_at(k_rows, k / 4 * G::kKeyPanel + k % 4 * 32),
            operand_at(q_rows, q.stage * G::kQueryBytes + k / 4 * G::kQueryPanel + k % 4 * 32), k != 0);
      products_commit();
      barrier_wait(o.full_barrier(), o.parity);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4 * G::kPanels; ++k)
        WarpgroupProduct<T, 64>::multiply(
            dp, operand_at(v_rows, k / 4 * G::kKeyPanel + k % 4 * 32),
            operand_at(o_rows, o.stage * G::kQueryBytes + k / 4 * G::kQueryPanel + k % 4 * 32), k != 0);
      products_commit();
      products_wait<1>();
      pin(s);
      // Scores become weights; under a softcap, weights times its slope beside those of the product.
      uint32_t p16[16];
      if constexpr (kCap) bend(s, args.softcap_inner);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 lse = load_pair(shared + G::kLse + q.stage * G::kTermBytes + 4 * (8 * j + column));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float &low = s[4 * j + 2 * h], &high = s[4 * j + 2 * h + 1];
          const float bent[2] = {low, high};
          low = simt::exp2_fast(fmaf(low, args.scale_log2, -lse.x));
          high = simt::exp2_fast(fmaf(high, args.scale_log2, -lse.y));
          if constexpr (kCap) {
            p16[2 * j + h] = pack_pair<T>(low, high);
            low *= fmaf(-bent[0], bent[0], 1.0f);
            high *= fmaf(-bent[1], bent[1], 1.0f);
          }
        }
      }
      const int stand = 64 * m + block.diagonal;  // of the tile's first query
      if (any_hidden || !(block_key + 63 <= min(block.keys - 1, stand + args.window_right) &&
                          block_key >= stand + 63 - args.window_left)) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int key = my_key + 8 * h;
          // Seen by the query of column c when key <= stand + c + right and key >= stand + c - left.
          const int least = hidden[h] || key >= block.keys ? 1 << 20 : key - stand - args.window_right - column,
                    most = key - stand + args.window_left - column;
#pragma unroll
          for (int j = 0; j < 8; ++j) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              if (8 * j + e >= least && 8 * j + e <= most) continue;
              s[4 * j + 2 * h + e] = 0.0f;
              if constexpr (kCap) p16[2 * j + h] &= e == 0 ? 0xffff0000u : 0xffffu;
            }
          }
        }
      }
      if constexpr (!kCap) {
#pragma unroll
        for (int i = 0; i < 16; ++i) p16[i] = pack_pair<T>(s[2 * i], s[2 * i + 1]);
      }
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WarpgroupProduct<T, G::kOwnColumns>::multiply_registers(
            grad_v, p16 + 4 * k, operand_at(o_down, o.stage * G::kQueryBytes + k * kStepBytes));
      products_commit();
      products_wait<1>();
      pin(dp);
      uint32_t ds16[16];
      const uint32_t ds_at =
          shared + G::kWeights + buffer * G::kWeightBytes + (64 * warpgroup + row) * 128 + 2 * column;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 offset = load_pair(shared + G::kOffset + o.stage * G::kTermBytes + 4 * (8 * j + column));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          ds16[2 * j + h] = pack_pair<T>(s[4 * j + 2 * h] * (dp[4 * j + 2 * h] + offset.x),
                                         s[4 * j + 2 * h + 1] * (dp[4 * j + 2 * h + 1] + offset.y));
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(ds_at + h * 1024 + ((j ^ row % 8) << 4)), "r"(ds16[2 * j + h])
                       : "memory");
        }
      }
      shared_stores_ready();
      // Two buffers: when a warp stores into one again, all that read it have passed this barrier once more, and so
      // have read it.
      if (G::kSplitsColumns) {
        named_wait<128>(2 + warpgroup);
      } else {
        named_wait<256>(1);
      }
      float dq[G::kQueryColumns / 2];  // of 64 queries
      const auto multiply_queries = [&](int part) {
        products_begin();
#pragma unroll
        for (int k = 0; k < G::kBlockKeys / 16; ++k)
          multiply_down<T>(dq, operand_at(s_down, buffer * G::kWeightBytes + k * kStepBytes),
                           operand_at(k_down, part * G::kKeyPanel + k * kStepBytes), k != 0);
        products_commit();
      };
      float* to = sums + static_cast<int64_t>(m) * G::kSums;
      const auto add_queries = [&](int part) {
        pin(dq);
#pragma unroll
        for (int i = 0; i < G::kQueryColumns / 8; ++i) {
          asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + 4096 * part + 512 * i),
                       "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                       : "memory");
        }
      };
      multiply_queries(0);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WarpgroupProduct<T, G::kOwnColumns>::multiply_registers(
            grad_k, ds16 + 4 * k, operand_at(q_down, q.stage * G::kQueryBytes + k * kStepBytes));
      products_commit();
      products_wait<1>();
      release(o.empty_barrier());
      o.advance();
      add_queries(0);
      if constexpr (G::kQueryParts > 1) {
        multiply_queries(1);
        products_wait<0>();
        add_queries(1);
      }
      products_wait<0>();
      release(q.empty_barrier());
      q.advance();
      buffer ^= 1;
    }
  }
  products_wait<0>();
  pin(grad_k);
  pin(grad_v);
  named_wait<256>(1);  // nothing reads K and V any more
  const int out = warpgroup * G::kToKeys + to_columns * G::kKeyPanel;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (hidden[h]) {
#pragma unroll
      for (int j = 0; j < G::kOwnColumns / 8; ++j) grad_k[4 * j + 2 * h] = grad_k[4 * j + 2 * h + 1] = 0.0f;
#pragma unroll
      for (int j = 0; j < G::kOwnColumns / 8; ++j) grad_v[4 * j + 2 * h] = grad_v[4 * j + 2 * h + 1] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < G::kOwnColumns / 8; ++j) {
      const uint32_t to =
          shared + out + j / 8 * G::kKeyPanel + (row + 8 * h) * 128 + ((j % 8 ^ row % 8) << 4) + 2 * column;
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + G::kKeys),
                   "r"(pack_pair<T>(grad_k[4 * j + 2 * h] * args.scale, grad_k[4 * j + 2 * h + 1] * args.scale))
                   : "memory");
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + G::kValues),
                   "r"(pack_pair<T>(grad_v[4 * j + 2 * h], grad_v[4 * j + 2 * h + 1]))
                   : "memory");
    }
  }
  shared_stores_ready();
  named_wait<128>(2 + warpgroup);
  if (thread == 0) {
    if (block_key < block.keys) {
      if constexpr (kHasGradientOptions<Args>) {
        if (block.maps != nullptr) {
          read_sequence_map(block.maps + kMapGradK);
          read_sequence_map(block.maps + kMapGradV);
        }
      }
      const cuda::TensorMap& grad_k_map = map_of<Args>(block, args.grad_k, kMapGradK);
      const cuda::TensorMap& grad_v_map = map_of<Args>(block, args.grad_v, kMapGradV);
      for (int p = 0; p < G::kOwnPanels; ++p) {
        copy_panel_out(grad_k_map, 64 * (to_columns + p), kv_head, block_key, sequence,
                       shared + G::kKeys + out + p * G::kKeyPanel);
        copy_panel_out(grad_v_map, 64 * (to_columns + p), kv_head, block_key, sequence,
                       shared + G::kValues + out + p * G::kKeyPanel);
      }
    }
    commit_panels_out();
    wait_panels_read();
  }
}

}  // namespace rlk::cuda_kernels
