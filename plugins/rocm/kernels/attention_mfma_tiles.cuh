// Keys and values on their way to the matrix units: a block's next tile in registers while it computes with this one in
// shared memory, and how both lie there.
#pragma once

#include "../../simt/attention.cuh"
#include "attention_mfma.h"
#include "mfma.cuh"

namespace rlk::rocm_kernels {

using namespace simt;

template <int kHead_, int kRowTiles_>
struct MfmaShape {
  static constexpr int kHead = kHead_;                            // head size, padded
  static constexpr int kRowTiles = kRowTiles_;                    // of 16 rows, per wave
  static constexpr int kKeys = rocm::attention_mfma_keys(kHead);  // of a tile
  static constexpr int kThreads = rocm::kMfmaThreads;
  static constexpr int kBlockRows = rocm::kMfmaWaves * kRowTiles * 16;
  static constexpr int kKeyStride = rocm::attention_mfma_key_stride(kHead);
  static constexpr int kValueStride = rocm::attention_mfma_value_stride(kHead);
  static constexpr int kValuesAt = kKeys * kKeyStride;  // elements
};

// Where a key's row, and a value's column as a row, lie among 32 of them: a lane's four of one product and its four of
// the next are then eight neighbours, so that 16-byte accesses bring (or take) both.
__device__ constexpr int mfma_row(int i) {
  return (i & ~31) | (i & 4) << 2 | (i >> 1 & 12) | (i & 3);
}
// The key (or column) that element `e` of product `tile` has in a lane's result.
__device__ __forceinline__ int mfma_column(int tile, int e, int lane) {
  return 32 * (tile / 2) + 8 * (lane / 16) + 4 * (tile % 2) + e;
}

// Brings the tiles of one sequence, one after the other: into registers, and from there into shared memory. Rows of
// shared memory begin 4 (keys), and 4 or 20 (values) banks of 4 bytes apart: 8 lanes that read 16 bytes of as many rows
// meet all 32 banks once.
template <class S, class T>
struct MfmaLoader {
  // Keys: a thread has 8 columns of every so many rows.
  static constexpr int kChunks = S::kHead / 8, kRowsAtOnce = S::kThreads / kChunks;
  static constexpr int kKeyLoads = (S::kKeys + kRowsAtOnce - 1) / kRowsAtOnce;
  // Values: it turns 4 keys by 4 columns. Neighbours have neighbouring keys: they write to neighbouring banks.
  static constexpr int kFours = S::kKeys / 4, kColumnsAtOnce = S::kThreads / kFours * 4;
  static constexpr int kValueLoads = (S::kHead + kColumnsAtOnce - 1) / kColumnsAtOnce;

  int key_row, key_column, value_row, value_column;
  const T* keys;  // this thread's first of the next tile
  const T* values;
  int64_t key_stride, value_stride;
  int head_size;
  int64_t left;  // keys of the sequence from the next tile on
  uint4 key[kKeyLoads];
  uint32_t value[kValueLoads][4][2];

  __device__ __forceinline__ MfmaLoader(const AttentionArgs& args, const AttentionWork& work, int64_t first_key)
      : key_row(static_cast<int>(threadIdx.x) / kChunks),
        key_column(static_cast<int>(threadIdx.x) % kChunks * 8),
        value_row(static_cast<int>(threadIdx.x) % kFours * 4),
        value_column(static_cast<int>(threadIdx.x) / kFours * 4),
        keys(tensor_row<const T>(args.k, work.batch, work.k_token + first_key + key_row, work.kv_head) + key_column),
        values(tensor_row<const T>(args.v, work.batch, work.k_token + first_key + value_row, work.kv_head) +
               value_column),
        key_stride(args.k.token_stride),
        value_stride(args.v.token_stride),
        head_size(args.head_size),
        left(work.keys - first_key) {}

  // The next tile. What lies beyond the sequence or the head, and what padding hides (whose bit of `open` is 0), is not
  // read and becomes 0.
  __device__ __forceinline__ void load(uint64_t open) {
    if (S::kKeys < 64) open &= (uint64_t{1} << S::kKeys % 64) - 1;
    if (left < S::kKeys) open &= (uint64_t{1} << left) - 1;
    const bool has_keys = key_row < kRowsAtOnce && key_column < head_size;  // a remainder of the threads has none
    const uint64_t my_keys = has_keys ? open >> key_row : 0;
#pragma unroll
    for (int u = 0; u < kKeyLoads; ++u) {
      key[u] = uint4{0, 0, 0, 0};
      if ((my_keys >> u * kRowsAtOnce & 1) == 0) continue;
      key[u] = *reinterpret_cast<const uint4*>(keys + u * kRowsAtOnce * key_stride);
    }
#pragma unroll
    for (int u = 0; u < kValueLoads; ++u) {
      const uint64_t my_values = value_column + u * kColumnsAtOnce < head_size ? open >> value_row : 0;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        value[u][r][0] = value[u][r][1] = 0;
        if ((my_values >> r & 1) == 0) continue;
        const auto* from = reinterpret_cast<const uint32_t*>(values + r * value_stride + u * kColumnsAtOnce);
        value[u][r][0] = from[0];
        value[u][r][1] = from[1];
      }
    }
    keys += S::kKeys * key_stride;
    values += S::kKeys * value_stride;
    left -= S::kKeys;
  }

  __device__ __forceinline__ void store(T* tile) const {
#pragma unroll
    for (int u = 0; u < kKeyLoads; ++u) {
      const int row = key_row + u * kRowsAtOnce;
      if (S::kKeys % kRowsAtOnce != 0 && (key_row >= kRowsAtOnce || row >= S::kKeys)) break;
      *reinterpret_cast<uint4*>(tile + mfma_row(row) * S::kKeyStride + key_column) = key[u];
    }
#pragma unroll
    for (int u = 0; u < kValueLoads; ++u) {
      const int column = value_column + u * kColumnsAtOnce;
      if (S::kHead % kColumnsAtOnce != 0 && column >= S::kHead) break;
      T* const to =
          tile + S::kValuesAt + mfma_row(column) * S::kValueStride + value_row;  // four rows follow each other
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        uint32_t pair[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint32_t a = value[u][2 * h][c / 2], b = value[u][2 * h + 1][c / 2];
          pair[h] = c % 2 == 0 ? (a & 0xffff) | b << 16 : a >> 16 | (b & 0xffff0000u);
        }
        auto* const word = reinterpret_cast<uint32_t*>(to + c * S::kValueStride);
        word[0] = pair[0];
        word[1] = pair[1];
      }
    }
  }
};

}  // namespace rlk::rocm_kernels
