// attention in parts on tensor cores: the keys of a row are shared out to several blocks, and what they made is put
// together by one more kernel. For a few rows over many keys, as a step of decoding has them, and for samples that
// share a prefix, whose rows all read the prefix together.
//
// A row is (sample, query, head of the group). Where there are few, the warps of a block share the keys of each tile
// instead of the rows, and their results are joined in shared memory.
#pragma once

#include "../../simt/attention_samples.cuh"
#include "attention_parts.h"
#include "fixed_shares.cuh"
#include "mma_tiles.cuh"

namespace rlk::cuda_kernels {

using cuda::AttentionPartsArgs;

__device__ __forceinline__ void take_equal_share(int64_t split, int64_t splits, int64_t& first_tile, int64_t& tiles) {
  const int64_t share = (tiles + splits - 1) / splits;
  first_tile += split * share;
  tiles -= split * share;
  tiles = tiles < share ? tiles : share;
}

// What a block computes, over keys that lie behind one another: those of a sample, or of a prefix.
template <class T>
struct SampleParts {
  using Args = AttentionPartsArgs;
  static constexpr bool kFixed = false;
  template <class S, bool kOptions, bool kOwn>
  using Keys = TileLoader<S, T, kOptions, kOwn>;
  template <class S, bool kOptions, bool kOwn>
  using Values = TileLoader<S, T, kOptions, kOwn>;
  struct Row {
    int64_t sample, query, head;
  };

  const Args& args;
  int64_t batch, sample;        // sample: the only one, or the first of the prefix's rows
  int64_t first_row, last_row;  // of the sample, or of all samples
  int64_t split;
  int64_t before, count;       // keys before those of this launch, and of this launch
  int64_t all_keys, diagonal;  // query i stands at key i + diagonal
  int32_t kv_head;

  __device__ __forceinline__ SampleParts(const Args& given, int64_t item, int block_rows)
      : SampleParts(given, item / given.splits, item % given.splits, block_rows) {}
  // item: beside the shares of keys.
  __device__ __forceinline__ SampleParts(const Args& given, int64_t item, int64_t share, int block_rows)
      : args(given), split(share) {
    const bool of_prefix = args.of_prefix != 0;
    const int64_t rows = (of_prefix ? args.samples : 1) * args.queries * args.group;
    const int64_t tiles = (rows + block_rows - 1) / block_rows;
    first_row = (tiles - 1 - item % tiles) * block_rows;  // late queries first: they see the most keys
    last_row = (first_row + block_rows < rows ? first_row + block_rows : rows) - 1;
    item /= tiles;
    kv_head = static_cast<int32_t>(item % args.kv_heads);
    const int64_t sequence = item / args.kv_heads;
    batch = of_prefix ? sequence : sequence / args.samples;
    sample = of_prefix ? 0 : sequence % args.samples;
    before = of_prefix ? 0 : args.prefix_keys;
    count = of_prefix ? args.prefix_keys : args.keys;
    all_keys = args.prefix_keys + args.keys;
    diagonal = args.top_left != 0 ? 0 : all_keys - args.queries;
  }
  __device__ __forceinline__ bool begin() const { return true; }
  __device__ __forceinline__ void look() const {}
  __device__ __forceinline__ bool failed() const { return false; }

  __device__ __forceinline__ Row row(int64_t number) const {
    const int64_t rows_of_sample = args.queries * args.group;
    const int64_t of = number / rows_of_sample, in_sample = number - of * rows_of_sample;
    const int64_t query = in_sample / args.group;
    return {sample + of, query, kv_head * args.group + (in_sample - query * args.group)};
  }
  // The queries of a block's rows, the least and the most.
  __device__ __forceinline__ void queries(int64_t& least, int64_t& most) const {
    const Row first = row(first_row), last = row(last_row);
    const bool several = first.sample != last.sample;
    least = several ? 0 : first.query;
    most = several ? args.queries - 1 : last.query;
  }
  // Of the tiles of keys those of this block.
  template <class S>
  __device__ __forceinline__ void take_share(const KeyRange& /*seen*/, int64_t& first_tile, int64_t& tiles) const {
    take_equal_share(split, args.splits, first_tile, tiles);
  }
  __device__ __forceinline__ bool leaves_empty() const { return false; }
  __device__ __forceinline__ const T* query(const Row& at) const {
    return sample_row<const T>(args.q, batch, at.sample, at.query, at.head);
  }
  __device__ __forceinline__ KeyMask mask() const {
    return key_mask_of(args.of_prefix != 0 ? args.prefix_mask : args.key_mask, batch, sample);
  }
  template <class S, bool kOptions, bool kOwn>
  __device__ __forceinline__ Keys<S, kOptions, kOwn> keys(int64_t first_key, uint32_t tile, const KeyMask& mask) const {
    return load<Keys<S, kOptions, kOwn>>(args.of_prefix != 0 ? args.prefix_k : args.k, first_key, tile, mask);
  }
  template <class S, bool kOptions, bool kOwn>
  __device__ __forceinline__ Values<S, kOptions, kOwn> values(int64_t first_key, uint32_t tile,
                                                              const KeyMask& mask) const {
    return load<Values<S, kOptions, kOwn>>(args.of_prefix != 0 ? args.prefix_v : args.v, first_key, tile, mask);
  }

  // Where a row's part lies.
  struct Place {
    float *values, *sums;
  };
  __device__ __forceinline__ Place place(int64_t number, float /*total*/) const {
    const Row at = row(number);
    const int64_t rows = args.batches * args.samples * args.queries * args.q_heads;
    const int64_t token = (batch * args.samples + at.sample) * args.queries + at.query;
    const int64_t part = (args.first_slot + split) * rows + token * args.q_heads + at.head;
    return {args.parts + part * args.head_size, args.sums + 2 * part};
  }
  __device__ __forceinline__ void put(const Place& to, int d, float2 value) const {
    *reinterpret_cast<float2*>(to.values + d) = value;
  }
  __device__ __forceinline__ void put_sums(const Place& to, float top, float total) const {
    *reinterpret_cast<float2*>(to.sums) = make_float2(top, total);
  }

private:
  template <class Loader>
  __device__ __forceinline__ Loader load(const SampleTensor& from, int64_t first_key, uint32_t tile,
                                         const KeyMask& mask) const {
    return Loader(sample_row<const T>(from, batch, sample, 0, kv_head), from.token_stride, first_key, count,
                  args.head_size, tile, mask);
  }
};

// S: of a block in which warps have rows of their own. kFew: they share the first 16 instead, and each brings the keys
// that it multiplies. Parts: where rows, keys, values and results lie.
template <class T, class S, bool kAccurate, bool kOptions, bool kFew, class Parts>
__device__ __forceinline__ void attention_parts_mma(const typename Parts::Args& args) {
  constexpr bool kOwn = kFew;
  constexpr bool kApart = kFew && Parts::kFixed;  // the keys of a tile's warps do not follow each other
  constexpr int kRowTiles = S::kRowTiles, kKeys = S::kKeys, kHead = S::kHead, kHeadTiles = kHead / 8;
  constexpr int kRows = kFew ? cuda::kPartsFewRows : S::kBlockRows;
  constexpr int kWarpKeys = kFew ? kKeys / S::kWarps : kKeys;
  constexpr int kAdvance = kApart ? kWarpKeys : kKeys;  // keys from a tile to the next
  static_assert(!kFew || (kRowTiles == 1 && kWarpKeys % 16 == 0));
  unsigned char* const shared = dynamic_shared();
  Parts parts(args, args.first_block + blockIdx.x, kRows);
  if (!parts.begin()) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int valid_rows = static_cast<int>(parts.last_row - parts.first_row + 1);

  const auto visible = [&](int64_t query) {
    const KeyRange range = keys_in_window(args.window_left, args.window_right, parts.all_keys, query + parts.diagonal);
    return span_of(range, parts.before, parts.count);
  };
  // The keys that any row sees, and those that every row sees: bounds grow with the query.
  int64_t least, most;
  parts.queries(least, most);
  const KeyRange low = visible(least), high = visible(most);
  int64_t first_tile = low.first / kKeys;
  int64_t tiles = high.last < low.first ? 0 : high.last / kKeys + 1 - first_tile;
  parts.template take_share<S>({low.first, high.last}, first_tile, tiles);
  if (tiles <= 0 && parts.leaves_empty()) {
    parts.look();
    __syncthreads();
    if (parts.failed()) return;
    for (int row = static_cast<int>(threadIdx.x); row < valid_rows; row += S::kThreads) {
      parts.put_sums(parts.place(parts.first_row + row, 0.0f), -INFINITY, 0.0f);
    }
    return;
  }

  const uint32_t query_tile = shared_address(shared);
  const uint32_t key_tile = query_tile + 2 * S::kStride * kRows;
  const KeyMask mask = kOptions ? parts.mask() : KeyMask{};
  int64_t begin = first_tile * kKeys;
  if constexpr (kApart) begin = parts.own_first;
  auto keys = parts.template keys<S, kOptions, kOwn>(begin, key_tile, mask);
  auto values = parts.template values<S, kOptions, kOwn>(begin, key_tile + S::kStages * S::kTileBytes, mask);
  if (tiles > 0) {
    constexpr int kChunks = kHead / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += S::kThreads) {
      const int row = i / kChunks, column = i % kChunks * 8;
      const bool ok = row < valid_rows && column < args.head_size;
      copy_async_16(query_tile + 2 * (row * S::kStride + column),
                    parts.query(parts.row(parts.first_row + (ok ? row : 0))) + (ok ? column : 0), ok);
    }
  }

  const int warp_row = kFew ? 0 : warp * 16 * kRowTiles, warp_key = kFew ? warp * kWarpKeys : 0;
  const bool idle = warp_row >= valid_rows;
  int query_of[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = parts.first_row + warp_row + 16 * r + lane / 4 + 8 * h;
      query_of[r][h] = static_cast<int>(parts.row(row < parts.last_row ? row : parts.last_row).query);
    }
  }
  // Scores in powers of 2; a softcap leaves them so.
  const float scale = kOptions && args.softcap > 0 ? 1.0f : static_cast<float>(args.scale * 1.4426950408889634074);
  MmaRows<T, kHead, S::kStride, kRowTiles, kWarpKeys, kAccurate, S::kLayout, Parts::kFixed ? 16 : kWarpKeys> state;
  FixedSums<kHeadTiles, Parts::kFixed && !kFew> fixed(begin);
  const auto adjust = [&](int64_t tile) {
    if (kOptions && args.softcap > 0) state.cap(Softcap<float>(args));
    const int64_t first_key = begin + tile * kAdvance;
    if constexpr (Parts::kFixed && !kFew) fixed.begin_tile(state, first_key);
    if (first_key >= high.first && first_key + kAdvance - 1 <= (kApart ? min(low.last, parts.count - 1) : low.last) &&
        (!kOptions || mask.data == nullptr)) {
      return;
    }
    const int shift = kApart ? 0 : warp_key;  // the warp's first key
    const uint64_t open =
        kOptions ? unmasked_keys < kApart ? kWave : kKeys > (mask, parts.count, first_key) >> (shift + lane % 4 * 2)
                 : 0;
    const int64_t centre = parts.diagonal - parts.before - first_key - shift;
    const int end = clamp_to_tile(parts.count - 1 - first_key - shift);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t at = centre + query_of[r][h];
        const int right = args.window_right < 0 ? end : clamp_to_tile(at + args.window_right);
        const int left = args.window_left < 0 ? -(1 << 21) : clamp_to_tile(at - args.window_left);
        state.template hide<kOptions>(r, h, left, right < end ? right : end, open);
      }
    }
  };
  walk_tiles<S, kOwn>(state, keys, values, tiles, query_tile + query_fragment<S::kStride>(warp_row), key_tile, warp_key,
                      idle, scale, adjust, [&] { parts.look(); });
  if (parts.failed()) return;

  if constexpr (!kFew) {
    if (idle) return;
    fixed.finish(state);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float total = fixed.total(state, r, h);
        const int row = warp_row + 16 * r + lane / 4 + 8 * h;
        if (row >= valid_rows) continue;
        const auto to = parts.place(parts.first_row + row, total);
#pragma unroll
        for (int n = 0; n < kHeadTiles; ++n) {
          const int column = 8 * n + lane % 4 * 2;
          if (column >= args.head_size) break;
          parts.put(to, column, fixed.pair(state, r, n, h));
        }
        if (lane % 4 == 0) parts.put_sums(to, fixed.top(state, r, h), total);
      }
    }
  } else {
    // The warps' results lie where keys and values were.
    float* const out = reinterpret_cast<float*>(shared);  // [warps][rows][head]
    float* const tops = out + S::kWarps * kRows * kHead;  // [warps][rows]
    float* const totals = tops + S::kWarps * kRows;       // [warps][rows]
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane / 4 + 8 * h;
      const float total = state.total(0, h);
      if (lane % 4 == 0) {
        tops[warp * kRows + row] = state.top[0][h];
        totals[warp * kRows + row] = total;
      }
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) {
        *reinterpret_cast<float2*>(out + (warp * kRows + row) * kHead + 8 * n + lane % 4 * 2) =
            make_float2(state.out[0][n][2 * h], state.out[0][n][2 * h + 1]);
      }
    }
    __syncthreads();
    const int pairs = args.head_size / 2;
    for (int i = static_cast<int>(threadIdx.x); i < valid_rows * pairs; i += S::kThreads) {
      const int row = i / pairs, d = 2 * (i - row * pairs);
      float top = -INFINITY, total = 0.0f;
      float2 value = make_float2(0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < S::kWarps && !Parts::kFixed; ++w) top = fmaxf(top, tops[w * kRows + row]);
      const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
      for (int w = 0; w < S::kWarps; ++w) {
        const float2 of_warp = *reinterpret_cast<const float2*>(out + (w * kRows + row) * kHead + d);
        float factor = 0.0f;
        if constexpr (Parts::kFixed) {
          const Raised raised = raise(top, tops[w * kRows + row]);
          factor = raised.other;
          total *= raised.own;
          value.x *= raised.own;
          value.y *= raised.own;
        } else {
          factor = exp2_fast(tops[w * kRows + row] - base);
        }
        total = fmaf(totals[w * kRows + row], factor, total);
        value.x = fmaf(of_warp.x, factor, value.x);
        value.y = fmaf(of_warp.y, factor, value.y);
      }
      const auto to = parts.place(parts.first_row + row, total);
      parts.put(to, d, value);
      if (d == 0) parts.put_sums(to, top, total);
    }
  }
}

}  // namespace rlk::cuda_kernels
