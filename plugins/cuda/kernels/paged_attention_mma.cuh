// paged_attention on tensor cores: the kernel of attention in parts (attention_parts_mma.cuh) over keys and values that
// lie in the blocks of a cache, with the rows and checks of the kernel without matrix units
// (../../simt/paged_attention.cuh), whose merge puts the parts of a row together. Where there are too many to lie in
// memory at once they lie tile by tile (paged_parts_merge.cuh).
//
// A warp brings a fixed 16 keys of each tile of 64. Each lane knows where one of them lies, and reads the block of its
// key of the next tile from the table before it asks for the numbers of this one.
#pragma once

#include "../../simt/paged_attention.cuh"
#include "attention_parts_mma.cuh"
#include "paged_parts_merge.cuh"

namespace rlk::cuda_kernels {

constexpr int kPagedWarpKeys = 16;

// Where the keys of a warp lie, tile after tile. Offsets count 16 bytes, from the first block's token 0.
struct PagedKeys {
  static constexpr uint32_t kNone = ~0u;
  const PagedAttentionArgs& args;
  const PagedCache& cache;
  const int32_t* table;  // the sequence's; of a wider id its lower half
  int key, keys;         // this lane's of the next tile; of the sequence
  int block, place;      // of that key; block is as the table has it, -1 where there is no key

  __device__ __forceinline__ PagedKeys(const PagedAttentionArgs& given, const PagedCache& of, int64_t sequence,
                                       int64_t first_key, int64_t count)
      : args(given),
        cache(of),
        table(static_cast<const int32_t*>(given.block_table) +
              (sequence * given.table_stride[0] << (given.indices_are_i64 != 0 ? 1 : 0))),
        key(static_cast<int>(first_key) + static_cast<int>(threadIdx.x) / 32 * kPagedWarpKeys +
            static_cast<int>(threadIdx.x) % kPagedWarpKeys),
        keys(static_cast<int>(count)) {
    find();
  }
  // This lane's key of the tile, kNone where there is none or the id is none: the share that has it makes a NaN. Then
  // asks for the next tile's, whose answer no instruction waits for here.
  __device__ __forceinline__ uint32_t next(int tile_keys) {
    const bool is_there = static_cast<uint32_t>(block) < static_cast<uint32_t>(args.cache_blocks);
    const uint32_t offset =
        is_there ? static_cast<uint32_t>((block * cache.block_stride + place * cache.place_stride) / 8) : kNone;
    key += tile_keys;
    find();
    return offset;
  }

private:
  __device__ __forceinline__ void find() {
    block = -1;
    place = 0;
    if (key >= keys) return;
    const int m = static_cast<int>(map_divide(key, args.block_size, args.block_multiplier, args.block_shift));
    place = key - m * static_cast<int>(args.block_size);
    block = table[m * args.table_stride[1] << (args.indices_are_i64 != 0 ? 1 : 0)];
  }
};

// Tiles of keys, or of values, whose numbers of one token and head lie behind one another.
template <class S, class T>
struct PagedRowLoader {
  static constexpr int kChunks = S::kHead / 8, kRowsAtOnce = 32 / kChunks;
  static_assert(32 % kChunks == 0 && S::kKeys == kPagedWarpKeys * S::kWarps);
  PagedKeys where;
  const T* from;
  uint32_t to;
  bool in_head;

  __device__ __forceinline__ PagedRowLoader(const PagedKeys& keys, int kv_head, uint32_t shared_tile) : where(keys) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int column = lane % kChunks * 8;
    in_head = column < where.args.head_size;
    from = static_cast<const T*>(where.cache.data) + kv_head * where.cache.head_stride + (in_head ? column : 0);
    to = shared_tile + tile_place<S>(warp * kPagedWarpKeys + lane / kChunks, lane % kChunks);
  }
  __device__ __forceinline__ void load(uint32_t stage_bytes) {
    const int first = static_cast<int>(threadIdx.x) % 32 / kChunks;
    const uint32_t mine = where.next(S::kKeys);
#pragma unroll
    for (int r = 0; r < kPagedWarpKeys; r += kRowsAtOnce) {
      const uint32_t offset = wave_read(mine, r + first);
      const bool ok = in_head && offset != PagedKeys::kNone;
      copy_async_16(tile_step<S>(to, r) + stage_bytes, from + (ok ? int64_t{offset} * 8 : 0), ok);
    }
  }
};

// Tiles of head_major caches go to panels of shared memory 32 places of 16 bytes at a time. Two that one sector of 32
// bytes fills lie side by side there, too.

// Tiles of keys of which 8 elements of the head (or 8 times a power of 2) lie together, those of one token behind those
// of the one before. A lane has a key, and one of a step's two times 8 elements.
template <class S, class T>
struct PagedGroupLoader {
  static_assert(S::kLayout == MmaLayout::panels);
  static constexpr int kSteps = S::kHead / 16;
  PagedKeys where;
  const T* from;
  uint32_t to;
  uint32_t group_stride;  // in 16 bytes
  int half, shift;        // 8 << shift elements lie together

  __device__ __forceinline__ PagedGroupLoader(const PagedKeys& keys, int kv_head, uint32_t shared_tile) : where(keys) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    shift = 0;
    while (int64_t{8} << shift < where.cache.group) ++shift;
    half = is_wide() ? lane % 2 : lane / kPagedWarpKeys;
    group_stride = static_cast<uint32_t>(where.cache.group_stride / 8);
    from = static_cast<const T*>(where.cache.data) + kv_head * where.cache.head_stride;
    to = shared_tile + warp * panel_bytes(S::kHead) + 16 * (is_wide() ? paired_place(lane) : lane);
  }
  __device__ __forceinline__ uint32_t fragment(int first_key) const {
    return panel_fragment<S::kHead>(first_key, is_wide());
  }
  __device__ __forceinline__ void load(uint32_t stage_bytes) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t mine = where.next(S::kKeys);  // of key lane % 16
    const uint32_t offset = is_wide() ? wave_read(mine, lane / 2) : mine;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int eight = 2 * s + half;
      const bool ok = offset != PagedKeys::kNone && 8 * eight < where.args.head_size;
      const uint32_t in_token = static_cast<uint32_t>(eight >> shift) * group_stride + (eight & ((1 << shift) - 1));
      copy_async_16(to + stage_bytes + 512 * s, from + (ok ? (int64_t{offset} + in_token) * 8 : 0), ok);
    }
  }

private:
  // Whether a key's elements fill sectors.
  __device__ __forceinline__ bool is_wide() const {
    return shift > 0;
  }
};

// Tiles of values whose tokens lie together, 8 (or a multiple) of each element of the head. A lane has an element of a
// step's 16, and 8 of the 16 tokens.
template <class S, class T>
struct PagedColumnLoader {
  static_assert(S::kLayout == MmaLayout::panels);
  static constexpr int kSteps = S::kHead / 16;
  PagedKeys where;
  const T* from;
  uint32_t to;
  bool is_wide;  // an element's 16 tokens lie in one block and fill a sector
  int half;

  __device__ __forceinline__ PagedColumnLoader(const PagedKeys& keys, int kv_head, uint32_t shared_tile) : where(keys) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    is_wide = where.args.block_size % kPagedWarpKeys == 0;
    half = is_wide ? lane % 2 : lane / 16;
    from = static_cast<const T*>(where.cache.data) + kv_head * where.cache.head_stride +
           (is_wide ? lane / 2 : lane % 16) * where.cache.element_stride;
    to = shared_tile + warp * panel_bytes(S::kHead) + 16 * (is_wide ? paired_place(lane) : lane);
  }
  __device__ __forceinline__ uint32_t fragment(int first_key) const {
    return panel_fragment<S::kHead>(first_key, is_wide);
  }
  __device__ __forceinline__ void load(uint32_t stage_bytes) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int left = where.keys - (where.key - lane % kPagedWarpKeys + half * 8);  // of this lane's 8 and the rest
    const uint32_t offset = wave_read(where.next(S::kKeys), half * 8);
    const int there = offset == PagedKeys::kNone || left <= 0 ? 0 : left < 8 ? 2 * left : 16;
    const T* const at = from + (there > 0 ? int64_t{offset} * 8 : 0);
    const int first = is_wide ? lane / 2 : lane % 16;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const bool in_head = 16 * s + first < where.args.head_size;
      copy_async_part(to + stage_bytes + 512 * s, at + (in_head ? 16 * s * where.cache.element_stride : 0),
                      in_head ? there : 0);
    }
  }
};

// Which tile of rows a block takes: those of the longest sequences come first. Their blocks would otherwise run alone
// at the end: 64 sequences of 1 to 8192 keys took 288 us on an H200, and 252 in this order. All threads ask.
constexpr int kPagedRankedSequences = kPagedThreads;  // a thread each
__device__ __forceinline__ int64_t paged_longest_first(const PagedAttentionArgs& args, int64_t tile, int64_t rows) {
  __shared__ uint4 orders[kPagedRankedSequences / 4];  // of lengths, made different by their places
  __shared__ int ranked;
  if (args.sequences > kPagedRankedSequences) return tile;
  constexpr int64_t kMost = (int64_t{1} << 24) - 2;
  const int me = static_cast<int>(threadIdx.x);
  uint32_t mine = 0;
  if (me < args.sequences) {
    const int64_t keys = read_index(args.context_lens, me * args.lens_stride, args.indices_are_i64 != 0);
    const int64_t order = (keys < 0 ? 0 : keys < kMost ? keys : kMost) + 1;
    mine = static_cast<uint32_t>(order * kPagedRankedSequences + kPagedRankedSequences - 1 - me);
  }
  reinterpret_cast<uint32_t*>(orders)[me] = mine;
  __syncthreads();
  int rank = 0;
#pragma unroll 4
  for (int i = 0; i < (static_cast<int>(args.sequences) + 3) / 4; ++i) {
    const uint4 others = orders[i];
    rank += (others.x > mine) + (others.y > mine) + (others.z > mine) + (others.w > mine);
  }
  const int64_t tiles = (args.group + rows - 1) / rows;
  if (me < args.sequences && rank == tile / tiles) ranked = me;
  __syncthreads();
  return ranked * tiles + tile % tiles;
}

// What a block computes. kGroups: the layout head_major.
template <class T, bool kGroups>
struct PagedParts {
  using Args = PagedAttentionArgs;
  static constexpr bool kFixed = false;  // its fixed shares are taken by blocks of few rows alone
  template <class S>
  using Keys = std::conditional_t<kGroups, PagedGroupLoader<S, T>, PagedRowLoader<S, T>>;
  template <class S>
  using Values = std::conditional_t<kGroups, PagedColumnLoader<S, T>, PagedRowLoader<S, T>>;
  struct Row {
    int64_t query, head;
  };

  const Args& args;
  PagedWork work;
  int64_t tile, rows;  // rows: of a block
  int64_t first_row, last_row, split;
  int64_t all_keys, diagonal, count;
  static constexpr int64_t before = 0;
  int32_t kv_head;
  int* is_bad;  // shared: whether a block of the table is

  __device__ __forceinline__ PagedParts(const Args& given, int64_t item, int block_rows)
      : args(given), rows(block_rows) {
    kv_head = static_cast<int32_t>(item % args.kv_heads);
    item /= args.kv_heads;
    if (args.fixed_shares != 0) {
      const cuda::FixedShareOfTile of = cuda::fixed_share_at(item, args.splits, args.part_tiles);
      split = of.share;
      tile = args.first_tile + of.tile;
    } else {
      split = item % args.splits;
      tile = args.first_tile + item / args.splits;
    }
  }
  // Whether there are rows, and all they name is right, but for the table. Those of wrong sequences become NaN.
  __device__ __forceinline__ bool begin() {
    __shared__ unsigned long long first_bad;
    __shared__ int found_bad;
    is_bad = &found_bad;
    if (threadIdx.x == 0) found_bad = 0;
    __syncthreads();
    if (paged_cu_is_bad(args, first_bad)) {
      // Where parts lie tile by tile the merge does this.
      if (args.tile_rows == 0) paged_nan_rows<T>(args, split, 0, kv_head, tile, args.queries * args.group, args.tiles);
      return false;
    }
    if (args.sequences == 0) return false;
    // Fixed shares are small, and parts that lie tile by tile have room for the tiles of one launch.
    if (args.cu_q == nullptr && args.fixed_shares == 0 && args.tile_rows == 0) {
      tile = paged_longest_first(args, tile, rows);
    }
    work = paged_work(args, tile, static_cast<int>(rows));
    const int64_t of_sequence = work.queries * args.group;
    if (work.first_row > 0 && work.first_row >= of_sequence) return false;
    first_row = work.first_row;
    last_row = (first_row + rows < of_sequence ? first_row + rows : of_sequence) - 1;
    if (paged_length_is_bad(args, work, reports() && split == 0)) {
      put_nan();
      return false;
    }
    all_keys = count = work.keys;
    diagonal = work.keys - work.queries;
    if (of_sequence > 0) return true;
    look();  // all that a sequence without queries has to tell
    return false;
  }
  // Looks for blocks that are out of range. Loaders leave out what such a block would hold.
  __device__ __forceinline__ void look() const { paged_find_bad_block(args, work, split, reports(), *is_bad); }
  // Whether there was one; the rows are NaN then. After look and a barrier.
  __device__ __forceinline__ bool failed() const {
    if (*is_bad == 0) return false;
    put_nan();
    return true;
  }

  __device__ __forceinline__ Row row(int64_t number) const {
    const int64_t query = number / args.group;
    return {query, kv_head * args.group + (number - query * args.group)};
  }
  __device__ __forceinline__ void queries(int64_t& least, int64_t& most) const {
    least = row(first_row).query;
    most = row(last_row).query;
  }
  // Fixed shares begin where no other row, nor the sequence's length, moves their bounds.
  template <class S>
  __device__ __forceinline__ void take_share(const KeyRange& /*seen*/, int64_t& first_tile, int64_t& tiles) const {
    if (args.fixed_shares == 0) return take_equal_share(split, args.splits, first_tile, tiles);
    static_assert(1024 % S::kKeys == 0);
    const int64_t begin = cuda::fixed_share_begin(split) / S::kKeys,
                  next = cuda::fixed_share_begin(split + 1) / S::kKeys;
    const int64_t end = first_tile + tiles;
    first_tile = begin > first_tile ? begin : first_tile;
    tiles = (next < end ? next : end) - first_tile;
  }
  // Whether a share without keys need not write the values of its rows: the merge reads none.
  __device__ __forceinline__ bool leaves_empty() const { return args.splits > 1; }
  __device__ __forceinline__ const T* query(const Row& at) const {
    return static_cast<const T*>(args.q) + (work.query + at.query) * args.q_stride[0] + at.head * args.q_stride[1];
  }
  __device__ __forceinline__ KeyMask mask() const { return {}; }
  template <class S, bool kOptions, bool kOwn>
  __device__ __forceinline__ Keys<S> keys(int64_t first_key, uint32_t shared_tile, const KeyMask&) const {
    return Keys<S>(PagedKeys(args, args.k, work.sequence, first_key, count), kv_head, shared_tile);
  }
  template <class S, bool kOptions, bool kOwn>
  __device__ __forceinline__ Values<S> values(int64_t first_key, uint32_t shared_tile, const KeyMask&) const {
    return Values<S>(PagedKeys(args, args.v, work.sequence, first_key, count), kv_head, shared_tile);
  }

  // Where a row's part lies, or with one share its result.
  struct Place {
    float *part, *sums;
    T* out;
    int64_t token, head;
    float inverse;
  };
  __device__ __forceinline__ Place place(int64_t number, float total) const {
    const Row at = row(number);
    const int64_t token = work.query + at.query;
    if (args.splits > 1) {
      const int64_t part = args.tile_rows == 0 ? (split * args.queries + token) * args.q_heads + at.head
                                               : paged_tile_part(args, split, tile - args.first_tile, kv_head,
                                                                 static_cast<int>(number - first_row));
      return {static_cast<float*>(args.parts) + part * args.head_size,
              static_cast<float*>(args.part_sums) + 2 * part,
              nullptr,
              token,
              at.head,
              0.0f};
    }
    return {nullptr, nullptr, static_cast<T*>(args.out) + token * args.out_stride[0] + at.head * args.out_stride[1],
            token,   at.head, total == 0.0f ? 0.0f : 1.0f / total};
  }
  __device__ __forceinline__ void put(const Place& to, int d, float2 value) const {
    if (args.splits > 1) {
      *reinterpret_cast<float2*>(to.part + d) = value;
    } else {
      *reinterpret_cast<uint32_t*>(to.out + d) = pack_pair<T>(value.x * to.inverse, value.y * to.inverse);
    }
  }
  __device__ __forceinline__ void put_sums(const Place& to, float top, float total) const {
    if (args.splits > 1) {
      *reinterpret_cast<float2*>(to.sums) = make_float2(top, total);
    } else {
      paged_put_lse(args, to.token, to.head, top, total);
    }
  }

private:
  __device__ __forceinline__ bool reports() const { return kv_head == 0 && work.first_row == 0; }
  // A sum that is NaN makes the merge's result NaN.
  __device__ __forceinline__ void put_nan() const {
    if (args.splits == 1) return paged_nan_rows<T>(args, 0, work.query, kv_head, first_row, last_row + 1, 1);
    for (int64_t number = first_row + threadIdx.x; number <= last_row; number += kPagedThreads) {
      put_sums(place(number, 0.0f), 0.0f, NAN);
    }
  }
};

}  // namespace rlk::cuda_kernels
