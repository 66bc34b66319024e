// What attention on warpgroup products has for packed sequences, softcaps and key masks.
//
// Packed: the kernel in front counts each sequence's tiles of queries and makes its tensor maps. The copying thread of
// a block takes the next tile of all from a counter and tells the computing warpgroups of it through shared memory.
#pragma once

#include "sequence_maps.cuh"

namespace rlk::cuda_kernels {

using cuda::AttentionOptionsWgmmaArgs;

template <class Args>
constexpr bool kHasOptions = std::is_same_v<Args, AttentionOptionsWgmmaArgs>;

// A tile of queries, and the tiles of keys that its rows see.
struct WgmmaTile {
  int head, sequence, first_query, first, count;  // count -1: there is no such tile
  int queries, keys, diagonal;                    // of the sequence; keys: its own
  int64_t token;                                  // packed: the sequence's first
};

__device__ __forceinline__ void put_tile(uint32_t at, const WgmmaTile& tile) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(tile.head), "r"(tile.sequence),
               "r"(tile.first_query), "r"(tile.first)
               : "memory");
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at + 16), "r"(tile.count), "r"(tile.queries),
               "r"(tile.keys), "r"(tile.diagonal)
               : "memory");
  asm volatile("st.shared.b64 [%0], %1;" ::"r"(at + 32), "l"(tile.token) : "memory");
}
__device__ __forceinline__ WgmmaTile get_tile(uint32_t at) {
  WgmmaTile tile;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile.head), "=r"(tile.sequence), "=r"(tile.first_query), "=r"(tile.first)
               : "r"(at)
               : "memory");
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile.count), "=r"(tile.queries), "=r"(tile.keys), "=r"(tile.diagonal)
               : "r"(at + 16)
               : "memory");
  asm volatile("ld.shared.b64 %0, [%1];" : "=l"(tile.token) : "r"(at + 32) : "memory");
  // Of one lane: the compiler must know that a warp's lanes take the same loops, or it serializes the products.
  for (int* const its : {&tile.head, &tile.sequence, &tile.first_query, &tile.first, &tile.count, &tile.queries,
                         &tile.keys, &tile.diagonal}) {
    *its = simt::wave_read(*its, 0);
  }
  return tile;
}

// The tiles of packed sequences that a block takes. Those of a sequence follow each other, the last first: under a
// causal mask it sees the most keys.
struct PackedTiles {
  const SequenceMap* maps;  // of the sequence of the last tile
  int at, sequence;         // taken; of the last tile

  __device__ __forceinline__ void begin(const AttentionOptionsWgmmaArgs& args) {
    maps = nullptr;
    sequence = 0;
    if (args.maps != nullptr) at = atomicAdd(args.taken, 1);
  }
  // Without its tiles of keys; count 0, or -1 where there is none.
  __device__ __forceinline__ WgmmaTile next(const AttentionOptionsWgmmaArgs& args) {
    const int64_t* const plan = args.call.plan;
    WgmmaTile tile{};
    tile.count = -1;
    const int row = at / args.q_heads;
    if (row >= plan[args.sequences]) return tile;
    sequence = sequence_of(plan, row, sequence);
    const SequenceMap* const its = args.maps + static_cast<int64_t>(sequence) * cuda::kWgmmaSequenceMaps;
    if (its != maps) {
      maps = its;
      for (int i = 0; i < 3; ++i) read_sequence_map(maps + i);
    }
    tile.head = at % args.q_heads;
    at = atomicAdd(args.taken, 1);
    const bool is_i64 = args.call.cu_are_i64 != 0;
    const PackedSpan queries = packed_span(args.call.cu_q, sequence, is_i64);
    tile.sequence = sequence;
    tile.first_query = static_cast<int>(plan[sequence + 1] - 1 - row) * cuda::kWgmmaRows;
    tile.count = 0;
    tile.queries = static_cast<int>(queries.count);
    tile.keys = static_cast<int>(packed_span(args.call.cu_k, sequence, is_i64).count);
    tile.diagonal = args.call.top_left != 0 ? 0 : tile.keys - tile.queries;
    tile.token = queries.first;
    return tile;
  }
};

// One block, before the kernel: the plan, the maps of each sequence, no tile taken yet.
__device__ __forceinline__ void attention_wgmma_plan(const AttentionOptionsWgmmaArgs& args) {
  simt::attention_plan(args.call);
  if (threadIdx.x == 0) *args.taken = 0;
  if (args.call.plan[args.sequences + 1] != 0) return;  // the last __syncthreads of the plan is behind its store
  const bool is_i64 = args.call.cu_are_i64 != 0;
  for (int64_t b = threadIdx.x; b < args.sequences; b += simt::kPlanThreads) {
    const PackedSpan queries = packed_span(args.call.cu_q, b, is_i64), keys = packed_span(args.call.cu_k, b, is_i64);
    SequenceMap* const to = args.maps + b * cuda::kWgmmaSequenceMaps;
    make_sequence_map(to, args.q, args.call.q.data, args.call.q.token_stride, queries.first, queries.count);
    make_sequence_map(to + 1, args.k, args.call.k.data, args.call.k.token_stride, keys.first, keys.count);
    make_sequence_map(to + 2, args.v, args.call.v.data, args.call.v.token_stride, keys.first, keys.count);
    make_sequence_map(to + 3, args.out, args.call.out.data, args.call.out.token_stride, queries.first, queries.count);
  }
}

// --- Softcap.

// y from -1/2 to 1/2. Within 2^-25.9 of its size, before rounding.
__device__ __forceinline__ float tanh_of_small(float y) {
  const float u = y * y;
  float p = fmaf(cuda::kTanh3, u, cuda::kTanh2);
  p = fmaf(p, u, cuda::kTanh1);
  p = fmaf(p, u, cuda::kTanh0);
  return y * fmaf(p, u, 1.0f);
}
// 1/2 itself by the series, too: bits of a score must not depend on the other scores of its warp.
__device__ __forceinline__ float tanh_of_any(float y) {
  const float size = fabsf(y), e = simt::exp2_fast(size * 2.8853900818f);
  return size <= 0.5f ? tanh_of_small(y) : copysignf(1.0f - __fdividef(2.0f, 1.0f + e), y);
}
// Caps are made for scores that seldom come near them: most warps take the short way. True for all lanes or for none.
template <int kCount>
__device__ __forceinline__ bool all_within(const float (&products)[kCount], float most) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) largest = fmaxf(largest, fabsf(products[i]));
  return simt::wave_ballot(!(largest <= most)) == 0;
}
__device__ __forceinline__ float bent_of_small(float x, const cuda::WgmmaSoftcap& softcap) {
  const float u = x * x;
  float p = fmaf(softcap.factors[3], u, softcap.factors[2]);
  p = fmaf(p, u, softcap.factors[1]);
  p = fmaf(p, u, softcap.factors[0]);
  return x * fmaf(p, u, 1.0f);
}
__device__ __forceinline__ float bent_of_any(float x, const cuda::WgmmaSoftcap& softcap) {
  const float bent = tanh_of_any(x * softcap.inner) * softcap.inverse;
  return fabsf(x) <= softcap.most ? bent_of_small(x, softcap) : bent;
}
template <int kCount>
__device__ __forceinline__ void bend(float (&products)[kCount], const cuda::WgmmaSoftcap& softcap) {
  if (all_within(products, softcap.most)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) products[i] = bent_of_small(products[i], softcap);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) products[i] = bent_of_any(products[i], softcap);
  }
}
// tanh(x inner) alone, of which the gradients need the slope.
template <int kCount>
__device__ __forceinline__ void bend(float (&products)[kCount], float inner) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) products[i] *= inner;
  if (all_within(products, 0.5f)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) products[i] = tanh_of_small(products[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) products[i] = tanh_of_any(products[i]);
  }
}

// --- Key masks.

// Which keys of a tile padding leaves: a bit each, also of those behind the sequence, which are hidden otherwise.
template <int kKeys>
struct OpenKeys {
  static constexpr int kWords = (kKeys + 31) / 32;
  bool hidden[kWords];  // of the lane's key of each word
  uint32_t word[kWords];

  // In two steps: the first asks memory, the second waits for it.
  __device__ __forceinline__ void ask(const simt::AttentionArgs& call, int64_t sequence, int first_key, int keys) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const int at = 32 * w + lane, key = first_key + at;
      hidden[w] = at < kKeys && key < keys &&
                  call.key_mask[sequence * call.mask_batch_stride + key * call.mask_key_stride] == 0;
    }
  }
  __device__ __forceinline__ void settle() {
#pragma unroll
    for (int w = 0; w < kWords; ++w) word[w] = ~static_cast<uint32_t>(simt::wave_ballot(hidden[w]));
  }
  __device__ __forceinline__ bool all() const {
    uint32_t every = ~uint32_t{0};
#pragma unroll
    for (int w = 0; w < kWords; ++w) every &= word[w];
    return every == ~uint32_t{0};
  }
  __device__ __forceinline__ bool has(int key) const {
    uint32_t its = word[0];
#pragma unroll
    for (int w = 1; w < kWords; ++w) its = key / 32 == w ? word[w] : its;
    return (its >> key % 32 & 1) != 0;
  }
};

// A row of panels in shared memory becomes 0: the weight 0 times a NaN would be one.
template <int kPanels, int kPanelBytes>
__device__ __forceinline__ void clear_row(uint32_t row) {
#pragma unroll
  for (int p = 0; p < kPanels; ++p) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(row + p * kPanelBytes + 16 * c), "r"(0) : "memory");
    }
  }
}

}  // namespace rlk::cuda_kernels
