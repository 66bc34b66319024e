// The tiles of attention on warpgroup products: their shapes, which keys a tile of queries meets, and the warpgroup
// that copies them into shared memory.
#pragma once

#include "attention_wgmma_options.cuh"
#include "wgmma.cuh"

namespace rlk::cuda_kernels {

using cuda::AttentionWgmmaArgs;
using cuda::PrefixAttentionWgmmaArgs;

enum class WgmmaForm { plain, narrow, accurate };

template <int kPadded, WgmmaForm kForm = WgmmaForm::plain>
struct WgmmaShape {
  static constexpr bool kAccurate = kForm == WgmmaForm::accurate;
  static constexpr cuda::WgmmaTiles kTiles = kForm == WgmmaForm::narrow ? cuda::kWgmmaNarrowTiles
                                             : kAccurate                ? cuda::wgmma_accurate_tiles(kPadded)
                                                                        : cuda::wgmma_tiles(kPadded);
  static constexpr int kWarpgroups = kTiles.warpgroups, kRows = kTiles.rows();
  static constexpr int kHead = kTiles.head, kKeys = kTiles.keys, kStages = kTiles.stages,
                       kQueryStages = kTiles.query_stages, kPanels = kTiles.panels();
  static constexpr bool kOwnOut = kTiles.own_out;
  static constexpr int kQueryBytes = kTiles.query_bytes(), kKeyBytes = kTiles.key_bytes(), kKeysAt = kTiles.keys_at();
  static constexpr int kValuesAt = kTiles.values_at(), kOutAt = kTiles.out_at(), kBarriersAt = kTiles.barriers_at();
  static constexpr int kTileAt = kTiles.tile_at();
  static constexpr int kQueryPanel = 128 * kRows, kKeyPanel = 128 * kKeys;                 // bytes
  static constexpr int kOutColumns = kHead == 192 ? 64 : kHead > 128 ? kHead / 2 : kHead;  // of one product
  static constexpr int kOutParts = kHead / kOutColumns;
  static_assert(kOutParts == 1 || kOutColumns % cuda::kWgmmaPanelColumns == 0, "a part begins with a panel");
};

// Numbered barriers: a turn and the output of each computing warpgroup.
constexpr int kTurnBarrier = 1;
template <class S>
constexpr int kOutBarrier = kTurnBarrier + S::kWarpgroups;

// The barriers of a block: of the queries, then of the rings.
template <class S>
struct WgmmaBarriers {
  uint32_t at;
  __device__ __forceinline__ uint32_t queries() const { return at; }
  // Of a ring of one stage.
  __device__ __forceinline__ uint32_t query_full() const { return at; }
  __device__ __forceinline__ uint32_t query_empty() const { return at + 8; }
  __device__ __forceinline__ uint32_t keys() const { return at + 16 * S::kQueryStages; }
  __device__ __forceinline__ uint32_t values() const { return keys() + 16 * S::kStages; }
  static constexpr int kReaders = 4 * S::kWarpgroups;  // warps that arrive at an empty barrier: all that compute

  __device__ __forceinline__ void init() const {
    for (int i = 0; i < S::kQueryStages; ++i) {
      barrier_init(queries() + 8 * i, 1);
      // The output takes the place of the queries: one thread of each warpgroup knows when that is free.
      barrier_init(queries() + 8 * (S::kQueryStages + i), S::kOwnOut ? kReaders : S::kWarpgroups);
    }
    for (int i = 0; i < S::kStages; ++i) {
      for (const uint32_t ring : {keys(), values()}) {
        barrier_init(ring + 8 * i, 1);
        barrier_init(ring + 8 * (S::kStages + i), kReaders);
      }
    }
  }
};

// The keys of a sequence in tiles: those of a prefix, then its own, which begin with a tile.
template <class Args>
constexpr bool kHasPrefix = std::is_same_v<Args, PrefixAttentionWgmmaArgs>;
template <class S, class Args>
struct WgmmaKeys {
  int prefix, prefix_tiles, all;  // keys before the sequence's own, and in tiles; of both

  // own: the keys of the sequence.
  __device__ __forceinline__ WgmmaKeys(const Args& args, int own) : prefix(0), prefix_tiles(0), all(own) {
    if constexpr (kHasPrefix<Args>) {
      prefix = args.prefix_keys;
      prefix_tiles = (prefix + S::kKeys - 1) / S::kKeys;
      all += prefix;
    }
  }
  __device__ __forceinline__ bool is_own(int tile) const { return !kHasPrefix<Args> || tile >= prefix_tiles; }
  __device__ __forceinline__ int tile_of(int key) const {
    if (!kHasPrefix<Args> || key < prefix) return key / S::kKeys;
    return prefix_tiles + (key - prefix) / S::kKeys;
  }
  __device__ __forceinline__ int first_key(int tile) const {
    return is_own(tile) ? prefix + (tile - prefix_tiles) * S::kKeys : tile * S::kKeys;
  }
  // The last key that a tile can have: what is behind a prefix in its last tile is not the sequence's.
  __device__ __forceinline__ int last_key(int tile) const { return (is_own(tile) ? all : prefix) - 1; }
};

// Of a tile's sequence. Where there are no options all are alike: nothing is kept in registers for them.
template <class Args>
__device__ __forceinline__ int queries_of(const Args& args, const WgmmaTile& tile) {
  return kHasOptions<Args> ? tile.queries : args.queries;
}
template <class Args>
__device__ __forceinline__ int keys_of(const Args& args, const WgmmaTile& tile) {
  return kHasOptions<Args> ? tile.keys : args.keys;
}
template <class Args>
__device__ __forceinline__ int diagonal_of(const Args& args, const WgmmaTile& tile) {
  return kHasOptions<Args> ? tile.diagonal : args.diagonal;
}

// The tiles of keys that a tile of queries sees.
template <class S, class Args>
__device__ __forceinline__ void find_keys(const Args& args, WgmmaTile& tile) {
  const int last_query = min(tile.first_query + S::kRows, queries_of(args, tile)) - 1;
  const WgmmaKeys<S, Args> all(args, keys_of(args, tile));
  const int high = min(all.all - 1, last_query + diagonal_of(args, tile) + args.window_right);
  const int low = max(0, tile.first_query + diagonal_of(args, tile) - args.window_left);
  tile.first = all.tile_of(low);
  tile.count = high < low ? 0 : all.tile_of(high) + 1 - tile.first;
}
// Of dense sequences, a block's next tile in each round.
template <class S, class Args>
__device__ __forceinline__ WgmmaTile tile_of(const Args& args, int round) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int at = round * blocks + (round % 2 != 0 ? blocks - 1 - block : block);
  const int heads = args.q_heads * args.sequences, rows = (args.queries + S::kRows - 1) / S::kRows;
  WgmmaTile tile{};
  tile.count = -1;
  if (at >= heads * rows) return tile;
  tile.head = at % heads % args.q_heads;
  tile.sequence = at % heads / args.q_heads;
  tile.first_query = (rows - 1 - at / heads) * S::kRows;
  tile.queries = args.queries;
  tile.keys = args.keys;
  tile.diagonal = args.diagonal;
  find_keys<S>(args, tile);
  return tile;
}

// The sequence's first token in lse.
template <class Args>
__device__ __forceinline__ int64_t first_token_of(const Args& args, const WgmmaTile& tile) {
  if constexpr (kHasOptions<Args>) {
    if (args.maps != nullptr) return tile.token;
  }
  return static_cast<int64_t>(tile.sequence) * args.queries;
}

// One thread's work: every copy in, in the order in which the tiles are needed.
template <class S, class Args>
__device__ __forceinline__ void copy_tiles(const Args& args, uint32_t shared, const WgmmaBarriers<S>& barriers) {
  RingPlace<S::kStages> keys(barriers.keys(), 1), values(barriers.values(), 1);
  RingPlace<S::kQueryStages> queries(barriers.queries(), 1);
  const auto load = [&](RingPlace<S::kStages>& ring, const cuda::TensorMap& map, int ring_at, int head, int token,
                        int sequence) {
    barrier_wait(ring.empty_barrier(), ring.parity);
    barrier_expect(ring.full_barrier(), S::kKeyBytes);
#pragma unroll
    for (int p = 0; p < S::kPanels; ++p) {
      copy_panel(shared + ring_at + ring.stage * S::kKeyBytes + p * S::kKeyPanel, map, p * cuda::kWgmmaPanelColumns,
                 head, token, sequence, ring.full_barrier());
    }
    ring.advance();
  };
  PackedTiles packed;
  if constexpr (kHasOptions<Args>) packed.begin(args);
  for (int round = 0;; ++round) {
    WgmmaTile tile;
    const cuda::TensorMap *q_map = &args.q, *k_map = &args.k, *v_map = &args.v;
    if constexpr (kHasOptions<Args>) {
      if (args.maps != nullptr) {
        tile = packed.next(args);
        if (tile.count == 0) find_keys<S>(args, tile);
        q_map = &packed.maps->map, k_map = &packed.maps[1].map, v_map = &packed.maps[2].map;
      } else {
        tile = tile_of<S>(args, round);
      }
      // The computing warpgroups have read what the tile before was.
      barrier_wait(queries.empty_barrier(), queries.parity);
      put_tile(shared + S::kTileAt, tile);
      if (tile.count < 0) return barrier_arrive(queries.full_barrier());
      if (args.maps != nullptr) tile.sequence = 0;
    } else {
      tile = tile_of<S>(args, round);
      if (tile.count < 0) return;
      barrier_wait(queries.empty_barrier(), queries.parity);
    }
    const WgmmaKeys<S, Args> all(args, keys_of(args, tile));
    const int kv_head = tile.head / (args.q_heads / args.kv_heads);
    const RingPlace<S::kQueryStages> place = queries;
    queries.advance();
    barrier_expect(place.full_barrier(), S::kQueryBytes);
#pragma unroll
    for (int p = 0; p < S::kPanels; ++p) {
      copy_panel(shared + place.stage * S::kQueryBytes + p * S::kQueryPanel, *q_map, p * cuda::kWgmmaPanelColumns,
                 tile.head, tile.first_query, tile.sequence, place.full_barrier());
    }
    const auto load_tile = [&](RingPlace<S::kStages>& ring, bool of_values, int number) {
      const int ring_at = of_values ? S::kValuesAt : S::kKeysAt;
      if constexpr (kHasPrefix<Args>) {
        if (!all.is_own(number)) {
          return load(ring, of_values ? args.prefix_v : args.prefix_k, ring_at, kv_head, number * S::kKeys,
                      tile.sequence / args.samples);
        }
      }
      load(ring, of_values ? *v_map : *k_map, ring_at, kv_head, (number - all.prefix_tiles) * S::kKeys, tile.sequence);
    };
    // From the last tile to the first, the values one step behind the keys.
    for (int i = tile.count - 1; i >= -1; --i) {
      if (i >= 0) load_tile(keys, false, tile.first + i);
      if (i + 1 < tile.count) load_tile(values, true, tile.first + i + 1);
    }
  }
}

}  // namespace rlk::cuda_kernels
