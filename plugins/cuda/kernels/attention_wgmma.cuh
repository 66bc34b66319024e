// attention for 16-bit tensors on Hopper's warpgroup products (sm_90a).
//
// Three warpgroups: one copies Q once and then K and V tiles, two stages of each, with cp.async (rows of any stride,
// zeros beyond the sequence); two compute, 64 query rows each. A computing warpgroup keeps scores, weights and output
// in registers; the product of the weights of one tile and the scores of the next are issued together, so that the
// tensor cores work on one warpgroup's products while the other one's softmax runs. Shared memory has the 128-byte
// swizzle of wgmma.cuh: blocks of 64 columns, in each row after row of 128 bytes. Cost: 4 Lq Lk D operations a head;
// and half of that again for the weights' second halves (see attention_mma.cuh).
#pragma once

#include "../../simt/attention.cuh"
#include "wgmma.cuh"

namespace rlk::cuda_kernels {

using namespace simt;

template <int kHead_>
struct WgmmaShape {
  static constexpr int kHead = kHead_;  // head size, padded
  static constexpr int kKeys = attention_wgmma_keys(kHead);
  static constexpr int kBlockRows = kWgmmaBlockRows;
  static constexpr uint32_t kQueryBytes = 2 * kHead * kBlockRows;
  static constexpr uint32_t kTileBytes = 2 * kHead * kKeys;
  // Offsets in shared memory.
  static constexpr uint32_t kKeyTiles = kQueryBytes;
  static constexpr uint32_t kValueTiles = kKeyTiles + 2 * kTileBytes;
  static constexpr uint32_t kBarriers = kValueTiles + 2 * kTileBytes;
};

// Byte of element (row, column) in a tile of `rows` rows; column is a multiple of 8.
__device__ __forceinline__ uint32_t swizzled(int rows, int row, int column) {
  return static_cast<uint32_t>(column / 64 * rows * 128 + row * 128 + (column % 64 / 8 ^ row % 8) * 16);
}

struct WgmmaBarriers {
  uint32_t first;
  __device__ __forceinline__ uint32_t queries() const { return first; }
  __device__ __forceinline__ uint32_t keys_full(int stage) const { return first + 8 + 8 * stage; }
  __device__ __forceinline__ uint32_t keys_empty(int stage) const { return first + 24 + 8 * stage; }
  __device__ __forceinline__ uint32_t values_full(int stage) const { return first + 40 + 8 * stage; }
  __device__ __forceinline__ uint32_t values_empty(int stage) const { return first + 56 + 8 * stage; }
};

// What both roles know of the block.
struct WgmmaBlock {
  AttentionWork work;
  KeyRange low, high;  // of the first and of the last query
  int64_t first_query, first_tile, tiles;
  int first_offset, valid_rows;
};

// Tiles arrive in the order Q, K0, V0, K1, V1, ... Copies are announced two items after they were issued: the
// announcement must follow their completion, and waiting for the newest would leave nothing under way. (Three items
// would deadlock: K1 would then be announced only after V2 has found room, which V0 makes after K1 was used.)
template <class T, class S>
__device__ __forceinline__ void wgmma_produce(const AttentionArgs& args, const WgmmaBlock& block, uint32_t shared,
                                              const WgmmaBarriers& barriers) {
  constexpr int kChunks = S::kHead / 8;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < S::kBlockRows * kChunks; i += 128) {
    const int row = i / kChunks, column = i % kChunks * 8;
    const bool ok = row < block.valid_rows && column < args.head_size;
    const int at = block.first_offset + (ok ? row : 0);
    const T* from =
        tensor_row<const T>(args.q, block.work.batch, block.work.q_token + block.first_query + at / args.group,
                            block.work.kv_head * args.group + at % args.group);
    copy_async_16(shared + swizzled(S::kBlockRows, row, column), from + (ok ? column : 0), ok);
  }
  commit_copies();

  // A thread keeps its column and steps down the rows.
  constexpr int kRowsAtOnce = 128 / kChunks;
  const int row = thread / kChunks, column = thread % kChunks * 8;
  const int64_t first_key = block.first_tile * S::kKeys;
  const bool busy = thread < kRowsAtOnce * kChunks;
  const T* key =
      tensor_row<const T>(args.k, block.work.batch, block.work.k_token + first_key + row, block.work.kv_head) + column;
  const T* value =
      tensor_row<const T>(args.v, block.work.batch, block.work.k_token + first_key + row, block.work.kv_head) + column;
  int64_t left = busy && column < args.head_size ? block.work.keys - first_key - row : 0;
  const auto load = [&](const T* from, int64_t stride, uint32_t to) {
    const int valid = static_cast<int>(left < S::kKeys ? left : S::kKeys);
#pragma unroll 8
    for (int r = 0; r < S::kKeys; r += kRowsAtOnce) {
      if (busy && r + row < S::kKeys) copy_async_16(to + swizzled(S::kKeys, r + row, column), from, r < valid);
      from += kRowsAtOnce * stride;
    }
    commit_copies();
  };
  const auto announce = [&](uint32_t barrier) {
    publish_to_products();
    barrier_arrive(barrier);
  };
  for (int64_t tile = 0; tile < block.tiles; ++tile) {
    const int stage = static_cast<int>(tile % 2), before = 1 - stage, parity = static_cast<int>(tile / 2 % 2);
    barrier_wait(barriers.keys_empty(stage), parity ^ 1);
    load(key, args.k.token_stride, shared + S::kKeyTiles + stage * S::kTileBytes);
    wait_copies<2>();
    if (tile > 0) announce(barriers.keys_full(before));
    barrier_wait(barriers.values_empty(stage), parity ^ 1);
    load(value, args.v.token_stride, shared + S::kValueTiles + stage * S::kTileBytes);
    wait_copies<2>();
    announce(tile > 0 ? barriers.values_full(before) : barriers.queries());
    key += S::kKeys * args.k.token_stride;
    value += S::kKeys * args.v.token_stride;
    left -= S::kKeys;
  }
  wait_copies<0>();
  const int last = static_cast<int>((block.tiles - 1) % 2);
  announce(barriers.keys_full(last));
  announce(barriers.values_full(last));
}

// Rows of one thread: query_of[h] + first_query is its query, h = 0 and 1 eight rows apart.
struct WgmmaRows {
  int query_of[2];
  float top[2];  // what the exponents have subtracted
  float sum[2];  // of the weights, this thread's columns
};

// Masks the scores of a tile and turns them into weights; scales what was there before.
template <class T, int kScoreTiles, int kHeadTiles>
__device__ __forceinline__ void wgmma_softmax(const AttentionArgs& args, const WgmmaBlock& block, int64_t first_key,
                                              float scale, WgmmaRows& rows, float (&score)[kScoreTiles][4],
                                              float (&out)[kHeadTiles][4]) {
  constexpr float kHeadroom = kIsBf16<T> ? 0.0f : 10.0f;  // see attention_mma.cuh
  constexpr int kKeys = 8 * kScoreTiles;
  if (first_key < block.high.first || first_key + kKeys - 1 > block.low.last) {
    const int64_t centre = block.first_query + block.work.keys - block.work.queries - first_key;
    const int last = clamp_to_tile(block.work.keys - 1 - first_key);
    const int right = args.window_right < 0 ? 1 << 20 : clamp_to_tile(centre + args.window_right);
    const int left = args.window_left < 0 ? -(1 << 21) : clamp_to_tile(centre - args.window_left);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int most = min(last, right + rows.query_of[h]), least = left + rows.query_of[h];
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + e;
          if (key > most || key < least) score[n][2 * h + e] = -INFINITY;
        }
      }
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float highest = -INFINITY;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) highest = fmaxf(highest, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
    highest = fmaxf(highest, wave_xor(highest, 1));
    highest = fmaxf(highest, wave_xor(highest, 2));
    const float base = fmaxf(rows.top[h], __fadd_rn(__fmul_rn(highest, scale), -kHeadroom));
    const float subtract = base == -INFINITY ? 0.0f : base;
    const float factor = exp2_fast(rows.top[h] - subtract);
    rows.top[h] = base;
    float total = 0.0f;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        score[n][2 * h + e] = exp2_fast(fmaf(score[n][2 * h + e], scale, -subtract));
        total += score[n][2 * h + e];
      }
    }
    rows.sum[h] = fmaf(rows.sum[h], factor, total);
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
      out[n][2 * h] *= factor;
      out[n][2 * h + 1] *= factor;
    }
  }
}

template <class T, class S>
__device__ __forceinline__ void wgmma_consume(const AttentionArgs& args, const WgmmaBlock& block, uint32_t shared,
                                              unsigned char* memory, const WgmmaBarriers& barriers) {
  constexpr int kScoreTiles = S::kKeys / 8, kHeadTiles = S::kHead / 8;
  const int thread = static_cast<int>(threadIdx.x) - 128, group = thread / 128, lane = thread % 32;
  const int first_row = 64 * group + thread % 128 / 32 * 16;  // of this warp
  WgmmaRows rows;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    rows.query_of[h] = (block.first_offset + first_row + lane / 4 + 8 * h) / args.group;
    rows.top[h] = -INFINITY;
    rows.sum[h] = 0.0f;
  }
  float out[kHeadTiles][4] = {};
  float score[kScoreTiles][4];
  const float scale = static_cast<float>(args.scale * 1.4426950408889634074);  // scores in powers of 2

  const auto issue_scores = [&](int stage) {
    products_begin();
#pragma unroll
    for (int d = 0; d < S::kHead / 16; ++d) {
      const uint32_t inside = d % 4 * 32;  // 16 columns further within a row of 64
      const uint64_t q = describe(shared + d / 4 * (S::kBlockRows * 128) + 64 * group * 128 + inside, 16, 1024);
      const uint64_t k =
          describe(shared + S::kKeyTiles + stage * S::kTileBytes + d / 4 * (S::kKeys * 128) + inside, 16, 1024);
      multiply_shared<T, kScoreTiles>(score, q, k, d > 0);
    }
    products_commit();
  };

  barrier_wait(barriers.queries(), 0);
  barrier_wait(barriers.keys_full(0), 0);
  issue_scores(0);
  products_wait<0>();
  pin(score);
  if (lane == 0) barrier_arrive(barriers.keys_empty(0));

  for (int64_t tile = 0; tile < block.tiles; ++tile) {
    const int stage = static_cast<int>(tile % 2), parity = static_cast<int>(tile / 2 % 2);
    wgmma_softmax<T>(args, block, (block.first_tile + tile) * S::kKeys, scale, rows, score, out);
    uint32_t weight[kScoreTiles / 2][4], rest[kScoreTiles / 2][4];
#pragma unroll
    for (int j = 0; j < kScoreTiles / 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float a = score[2 * j + i / 2][i % 2 * 2], b = score[2 * j + i / 2][i % 2 * 2 + 1];
        weight[j][i] = pack_pair<T>(a, b);
        const float2 kept = unpack_pair<T>(weight[j][i]);
        rest[j][i] = pack_pair<T>(a - kept.x, b - kept.y);
      }
    }

    pin(weight);
    pin(rest);
    barrier_wait(barriers.values_full(stage), parity);
    products_begin();
#pragma unroll
    for (int j = 0; j < S::kKeys / 16; ++j) {
      const uint32_t address = shared + S::kValueTiles + stage * S::kTileBytes + 16 * j * 128;
      const auto add = [&](const uint32_t(&w)[4]) {
        if constexpr (S::kHead == 64) {
          multiply_registers<T, 8, 0>(out, w, describe(address, S::kKeys * 128, 1024), true);
        } else {
          multiply_registers<T, 16, 0>(out, w, describe(address, S::kKeys * 128, 1024), true);
          if constexpr (S::kHead == 192) {
            multiply_registers<T, 8, 16>(out, w, describe(address + 2 * S::kKeys * 128, S::kKeys * 128, 1024), true);
          } else if constexpr (S::kHead == 256) {
            multiply_registers<T, 16, 16>(out, w, describe(address + 2 * S::kKeys * 128, S::kKeys * 128, 1024), true);
          }
        }
      };
      add(weight[j]);
      add(rest[j]);
    }
    products_commit();
    if (tile + 1 < block.tiles) {
      const int next = 1 - stage;
      barrier_wait(barriers.keys_full(next), static_cast<int>((tile + 1) / 2 % 2));
      issue_scores(next);
      products_wait<1>();
      pin(out);
      if (lane == 0) barrier_arrive(barriers.values_empty(stage));
      products_wait<0>();
      pin(score);
      if (lane == 0) barrier_arrive(barriers.keys_empty(next));
    } else {
      products_wait<0>();
      pin(out);
    }
  }

  // Out through this warp's own query rows, to leave in 16-byte accesses; the whole warpgroup is done with them.
  warpgroup_sync(1 + group);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = rows.sum[h];
    total += wave_xor(total, 1);
    total += wave_xor(total, 2);
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    const int row = first_row + lane / 4 + 8 * h;
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
      *reinterpret_cast<uint32_t*>(memory + swizzled(S::kBlockRows, row, 8 * n) + lane % 4 * 4) =
          pack_pair<T>(out[n][2 * h] * inverse, out[n][2 * h + 1] * inverse);
    }
    if (args.lse != nullptr && lane % 4 == 0 && row < block.valid_rows) {
      const int at = block.first_offset + row;
      const float lse = total == 0.0f
                            ? -INFINITY
                            : static_cast<float>((double(rows.top[h]) + log2(double(total))) * 0.69314718055994530942);
      static_cast<float*>(args.lse)[(block.work.lse_token + block.first_query + at / args.group) * args.q_heads +
                                    block.work.kv_head * args.group + at % args.group] = lse;
    }
  }
  wave_sync();
  constexpr int kChunks = S::kHead / 8;
#pragma unroll 4
  for (int i = lane; i < 16 * kChunks; i += 32) {
    const int row = first_row + i / kChunks, column = i % kChunks * 8;
    if (row >= block.valid_rows || column >= args.head_size) continue;
    const int at = block.first_offset + row;
    T* to = tensor_row<T>(args.out, block.work.batch, block.work.q_token + block.first_query + at / args.group,
                          block.work.kv_head * args.group + at % args.group);
    *reinterpret_cast<uint4*>(to + column) =
        *reinterpret_cast<const uint4*>(memory + swizzled(S::kBlockRows, row, column));
  }
}

// Rows that see no key at all: a block without a single tile.
template <class T>
__device__ inline void write_empty_rows(const AttentionArgs& args, const WgmmaBlock& block) {
  for (int row = static_cast<int>(threadIdx.x); row < block.valid_rows; row += static_cast<int>(blockDim.x)) {
    const int at = block.first_offset + row;
    const int64_t query = block.first_query + at / args.group;
    const int head = block.work.kv_head * args.group + at % args.group;
    T* to = tensor_row<T>(args.out, block.work.batch, block.work.q_token + query, head);
    for (int d = 0; d < args.head_size; ++d) to[d] = Narrow<T>::of(0.0f);
    if (args.lse != nullptr)
      static_cast<float*>(args.lse)[(block.work.lse_token + query) * args.q_heads + head] = -INFINITY;
  }
}

template <class T, class S>
__device__ __forceinline__ void attention_wgmma(const AttentionArgs& args) {
  if (fill_nan_if_bad<T>(args)) return;
  WgmmaBlock block;
  block.work = find_work(args, blockIdx.x);
  if (block.work.valid == 0) return;
  const int64_t left_rows = block.work.queries * args.group - block.work.first_row;
  block.valid_rows = static_cast<int>(left_rows < S::kBlockRows ? left_rows : S::kBlockRows);
  block.first_query = block.work.first_row / args.group;
  block.first_offset = static_cast<int>(block.work.first_row - block.first_query * args.group);
  // Bounds grow with the query.
  block.low = visible_keys(args, block.work, block.first_query);
  block.high = visible_keys(args, block.work, (block.work.first_row + block.valid_rows - 1) / args.group);
  block.first_tile = block.low.first / S::kKeys;
  block.tiles = block.high.last < block.low.first ? 0 : block.high.last / S::kKeys + 1 - block.first_tile;
  if (block.tiles == 0) {
    write_empty_rows<T>(args, block);
    return;
  }

  // The swizzle is one of addresses: atoms must start at multiples of 1024.
  unsigned char* memory = dynamic_shared();
  memory += (1024 - shared_address(memory) % 1024) % 1024;
  const uint32_t shared = shared_address(memory);
  const WgmmaBarriers barriers{shared + S::kBarriers};
  const int groups = block.valid_rows > 64 ? 2 : 1;  // that have rows to compute
  if (threadIdx.x == 0) {
    barrier_init(barriers.queries(), 128);
    for (int stage = 0; stage < 2; ++stage) {
      barrier_init(barriers.keys_full(stage), 128);
      barrier_init(barriers.values_full(stage), 128);
      barrier_init(barriers.keys_empty(stage), 4 * groups);
      barrier_init(barriers.values_empty(stage), 4 * groups);
    }
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers_back<40>();
    wgmma_produce<T, S>(args, block, shared, barriers);
  } else {
    take_registers<232>();
    if (threadIdx.x < 128 * (1 + groups)) wgmma_consume<T, S>(args, block, shared, memory, barriers);
  }
}

}  // namespace rlk::cuda_kernels
