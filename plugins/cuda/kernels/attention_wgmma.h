// What the host passes to attention_wgmma.cuh, and the tiles that both agree on.
#pragma once

#include "../../simt/args.h"

namespace rlk::cuda {

// A CUtensorMap: the driver writes it, the copy engine reads it.
struct alignas(64) TensorMap {
  uint64_t words[16];
};

// A map in memory, which one kernel writes and another's copies read.
struct alignas(128) SequenceMap {
  TensorMap map;
};
constexpr int kWgmmaSequenceMaps = 4;  // of a sequence: q, k, v, out

constexpr int kWgmmaThreads = 384;
constexpr int kWgmmaWarpgroupRows = 64, kWgmmaRows = 2 * kWgmmaWarpgroupRows;  // of queries
constexpr int kWgmmaPanelColumns = 64;  // of a row in shared memory, 128 bytes, the most that a swizzled copy takes
// Any token count and any window; the kernels' sums of three stay in 32 bits.
constexpr int64_t kWgmmaMostTokens = int64_t{1} << 29;

struct AttentionWgmmaArgs {
  TensorMap q, k, v, out;  // columns, heads, tokens, sequences
  float* lse;              // [sequences, queries, q_heads], nullptr: not wanted
  int32_t sequences, queries, keys, q_heads, kv_heads;
  int32_t diagonal;                   // query i stands at key i + diagonal
  int32_t window_left, window_right;  // kWgmmaMostTokens: all
  float scale;                        // of scores in powers of 2
};

// The same with keys before the others that `samples` sequences at a time share: query i stands at key i + diagonal of
// both together.
struct PrefixAttentionWgmmaArgs : AttentionWgmmaArgs {
  TensorMap prefix_k, prefix_v;
  int32_t prefix_keys, samples;
};

// tanh(y) / y - 1 over y^2, as a polynomial of y^2, for |y| up to 1/2.
constexpr float kTanh0 = -0.333331439f, kTanh1 = 0.133258789f, kTanh2 = -5.30454935e-2f, kTanh3 = 1.724149e-2f;

// A product x of query and key becomes tanh(x inner) / inner; `scale` remains what it is without a softcap.
// Up to `most` that is x (1 + f[0] x^2 + f[1] x^4 + ..), the series of tanh with inner in its factors.
struct WgmmaSoftcap {
  float inner, inverse, most, factors[4];
};

// The same with packed sequences, a softcap or a key mask.
struct AttentionOptionsWgmmaArgs : AttentionWgmmaArgs {
  simt::AttentionArgs call;  // with block_rows kWgmmaRows and group 1: plan has tiles of queries
  // Packed: of each sequence q, k, v and out, which end where the sequence ends; nullptr: dense. The kernel in front
  // makes them of q, k, v and out above, and sets `taken`, the tiles of queries that blocks have taken, to 0.
  SequenceMap* maps;
  int32_t* taken;
  WgmmaSoftcap softcap;
};

// The head size of the kernel that computes this one.
constexpr int wgmma_padded(int64_t head) {
  return head <= 64 ? 64 : head <= 96 ? 96 : head <= 128 ? 128 : head <= 192 ? 192 : 256;
}

constexpr int kWgmmaTileBytes = 48;  // of what a kernel with options tells its warpgroups of a tile

// Of one padded head size. Scores and output of a warpgroup, and the weights as T, share a thread's 232 registers; the
// rings, the queries and, where there is room, the output on its way out share 227 KiB.
struct WgmmaTiles {
  int head, keys, stages;
  bool own_out;        // the output leaves through shared memory of its own, not through that of the queries
  int warpgroups = 2;  // that compute
  int query_stages = 1;

  constexpr int panels() const { return (head + kWgmmaPanelColumns - 1) / kWgmmaPanelColumns; }
  constexpr int rows() const { return kWgmmaWarpgroupRows * warpgroups; }  // of queries
  constexpr int threads() const { return 128 * (1 + warpgroups); }
  constexpr int query_bytes() const { return 128 * rows() * panels(); }
  constexpr int key_bytes() const { return 128 * keys * panels(); }  // of one stage
  constexpr int keys_at() const { return query_stages * query_bytes(); }
  constexpr int values_at() const { return keys_at() + stages * key_bytes(); }
  constexpr int out_at() const { return own_out ? values_at() + stages * key_bytes() : 0; }
  constexpr int barriers_at() const { return values_at() + stages * key_bytes() + (own_out ? query_bytes() : 0); }
  constexpr int tile_at() const { return barriers_at() + 8 * (2 * query_stages + 4 * stages); }
  constexpr int shared_bytes() const { return tile_at() + kWgmmaTileBytes + 1024; }  // 1024: to align
};
constexpr WgmmaTiles wgmma_tiles(int padded) {
  return padded == 64    ? WgmmaTiles{64, 128, 4, true}
         : padded == 96  ? WgmmaTiles{96, 128, 2, true}
         : padded == 128 ? WgmmaTiles{128, 128, 2, true}
         : padded == 192 ? WgmmaTiles{192, 112, 2, false}
                         : WgmmaTiles{256, 80, 2, false};
}
// Of kernels that keep the weights in fp32: a tile's output apart from that so far, and weights as two numbers of T,
// are more registers, and there are fewer keys for them.
constexpr int kWgmmaMostAccurateHead = 128;
constexpr WgmmaTiles wgmma_accurate_tiles(int padded) {
  return padded == 64   ? WgmmaTiles{64, 128, 4, true}
         : padded == 96 ? WgmmaTiles{96, 96, 3, true}
                        : WgmmaTiles{128, 64, 4, true};
}
// Of heads up to 64 without options, which attention_wgmma_narrow.cuh computes.
constexpr WgmmaTiles kWgmmaNarrowTiles{64, 128, 4, true, 3, 2};

}  // namespace rlk::cuda
