// What the tensor core kernels of attention's forward have in common: the shape of a block, tiles of keys and values on
// their way into shared memory, and the rows of a warp in its registers, which walk over them.
#pragma once

#include "../../simt/attention.cuh"
#include "mma.cuh"

namespace rlk::cuda_kernels {

using namespace simt;

// How keys and values lie in shared memory, so that ldmatrix meets no bank twice.
//   padded     a row for each key, with a gap after it
//   swizzled   without gaps: places of 16 bytes change with those beside them. A power of 2 of them make a row
//   panels     16 keys at a time as caches of the layout head_major have them; loaders say where a fragment begins
// cp.async seems to ask for a sector of 32 bytes once for each 32 bytes of shared memory that it goes to: a decode step
// over padded rows, where that is twice for every other row, took 273 us on an H200 and over swizzled ones 254; caches
// in panels whose sectors were torn apart took 460, with the L2 cache at 0.9 of its rate.
enum class MmaLayout { padded, swizzled, panels };

template <int kHead_, int kWarps_, int kRowTiles_, MmaLayout kLayout_ = MmaLayout::padded, int kStages_ = 2>
struct MmaShape {
  static constexpr int kHead = kHead_;  // head size, padded
  static constexpr int kWarps = kWarps_;
  static constexpr int kRowTiles = kRowTiles_;             // of 16 rows, per warp
  static constexpr int kKeys = attention_mma_keys(kHead);  // of a tile
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlockRows = kWarps * kRowTiles * 16;
  static constexpr int kStride = attention_mma_stride(kHead);  // of a row in shared memory, elements
  static constexpr MmaLayout kLayout = kLayout_;
  static constexpr int kStages = kStages_;  // of tiles of keys, and of values
  static constexpr uint32_t kRowBytes = 2 * (kLayout == MmaLayout::padded ? kStride : kHead);  // of a key, or a value
  static constexpr uint32_t kTileBytes = kRowBytes * kKeys;
};

// Where a row of a tile has its place-th 16 bytes.
template <class S>
__device__ __forceinline__ uint32_t tile_place(uint32_t row, uint32_t place) {
  return row * S::kRowBytes + 16 * (S::kLayout == MmaLayout::swizzled ? place ^ row % 8 : place);
}
// From a place of row r to the same of row r + rows, where no bit of r % 8 is one of rows % 8.
template <class S>
__device__ __forceinline__ uint32_t tile_step(uint32_t at, uint32_t rows) {
  return (S::kLayout == MmaLayout::swizzled ? at ^ 16 * (rows % 8) : at) + rows * S::kRowBytes;
}
// From an even place to the `pairs`-th of two places after it.
template <MmaLayout kLayout>
__device__ __forceinline__ uint32_t pair_step(uint32_t at, uint32_t pairs) {
  return kLayout == MmaLayout::swizzled ? (at ^ 32 * (pairs % 4)) + 128 * (pairs / 4) : at + 32 * pairs;
}

RLK_SIMT_BOTH constexpr uint32_t panel_bytes(int head) {
  return 2 * 16 * head;
}

// Brings the key (or value) tiles of one sequence into shared memory, one after the other. A thread keeps its column
// and steps down the rows; rows beyond the sequence, masked rows and columns beyond the head size become 0. The
// sequence has a key. kOwn: a warp brings those rows of a tile that are the warp's by their number. kAdvance: the keys
// from a tile to the next.
template <class S, class T, bool kOptions, bool kOwn = false, int kAdvance = S::kKeys>
struct TileLoader {
  static constexpr int kChunks = S::kHead / 8;
  static constexpr int kThreads = kOwn ? 32 : S::kThreads, kRows = kOwn ? S::kKeys / S::kWarps : S::kKeys;
  static constexpr int kRowsAtOnce = kThreads / kChunks;  // a remainder of the threads has nothing to do
  const T* from;                                          // this thread's row of the next tile
  int64_t stride;                                         // of a row, elements
  uint32_t to;                                            // this thread's place in stage 0
  bool in_head;                                           // its column is one of the head
  int64_t left;                                           // rows of the sequence from this thread's row on
  const uint8_t* mask;  // of this thread's row of the next tile; nullptr: no row is masked
  int64_t mask_stride;

  __device__ __forceinline__ TileLoader(const T* sequence, int64_t token_stride, int64_t first_key, int64_t keys,
                                        int head_size, uint32_t shared_tile, const KeyMask& key_mask) {
    const int me = static_cast<int>(threadIdx.x), column = me % kThreads % kChunks * 8;
    const int row = me / kThreads * kRows + me % kThreads / kChunks;
    in_head = column < head_size;
    from = sequence + (first_key + row) * token_stride + (in_head ? column : 0);
    stride = token_stride;
    to = shared_tile + tile_place<S>(row, column / 8);
    left = keys - first_key - row;
    mask_stride = key_mask.stride;
    mask = kOptions ? key_mask.data : nullptr;
    if (kOptions && mask != nullptr) mask += (first_key + row) * mask_stride;
  }

  __device__ __forceinline__ void load(uint32_t stage_bytes) {
    if (static_cast<int>(threadIdx.x) % kThreads < kRowsAtOnce * kChunks) {
      if (in_head && left >= kRows && (!kOptions || mask == nullptr)) {
        load_whole(stage_bytes);
      } else {
        load_part(stage_bytes);
      }
    }
    from += kAdvance * stride;
    left -= kAdvance;
    if (kOptions && mask != nullptr) mask += kAdvance * mask_stride;
  }

private:
  __device__ __forceinline__ bool has(int r) const {
    return kRows % kRowsAtOnce == 0 || r + static_cast<int>(threadIdx.x) % kThreads / kChunks < kRows;
  }
  __device__ __forceinline__ void load_whole(uint32_t stage_bytes) const {
    const T* row = from;
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce) {
      if (has(r)) copy_async_16(tile_step<S>(to, r) + stage_bytes, row);
      row += kRowsAtOnce * stride;
    }
  }
  __device__ __forceinline__ void load_part(uint32_t stage_bytes) const {
    const int last = static_cast<int>(left < kRows ? left : kRows) - 1;  // below 0: before this thread's row
#pragma unroll 1
    for (int r = 0; r < kRows; r += kRowsAtOnce) {
      if (!has(r)) break;
      const bool open = in_head && r <= last && (!kOptions || mask == nullptr || mask[r * mask_stride] != 0);
      copy_async_16(tile_step<S>(to, r) + stage_bytes, from + (r <= last ? r : last) * stride, open);
    }
  }
};

// The rows of a warp, 16 a tile: their scores against kKeys keys, what the exponents have subtracted, the sums of the
// weights and the weighted values. This thread's rows of tile r are 16 r + lane / 4 + 8 h, its columns of 8 n
// 8 n + lane % 4 * 2 and the next: elements 2 h and 2 h + 1. kAccurate: weights as two numbers of T. kStepKeys: of so
// many keys at a time scores become weights; rows that take the same steps have the same bits, whatever kKeys is.
template <class T, int kHead, int kStride, int kRowTiles, int kKeys, bool kAccurate,
          MmaLayout kLayout = MmaLayout::padded, int kStepKeys = kKeys>
struct MmaRows {
  static constexpr int kSteps = kKeys / kStepKeys, kStepTiles = kStepKeys / 8;
  static constexpr int kScoreTiles = kKeys / 8, kHeadTiles = kHead / 8;
  static constexpr int kRowBytes = 2 * (kLayout == MmaLayout::padded ? kStride : kHead);  // of a key, or a value
  // Weights are kept times 2^kHeadroom: small f16 weights, and second halves, would otherwise lose bits to subnormals.
  static constexpr float kHeadroom = kIsBf16<T> ? 0.0f : 10.0f;
  float top[kRowTiles][2], sum[kRowTiles][2], out[kRowTiles][kHeadTiles][4], score[kRowTiles][kScoreTiles][4];
  float shrink[kSteps][kRowTiles][2];  // of several steps: what each multiplies the sums before it by

  __device__ __forceinline__ MmaRows() { clear(); }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        top[r][h] = -INFINITY;
        sum[r][h] = 0.0f;
      }
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out[r][n][e] = 0.0f;
      }
    }
  }

  // Scores of the queries and keys at these addresses of shared memory, which are the lane's (ldmatrix).
  __device__ __forceinline__ void multiply_keys(uint32_t queries, uint32_t keys) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) score[r][n][e] = 0.0f;
      }
    }
#pragma unroll
    for (int d = 0; d < kHead / 16; ++d) {
      uint32_t q[kRowTiles][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) load_matrices(q[r], queries + 2 * (16 * r * kStride + 16 * d));
#pragma unroll
      for (int n = 0; n < kScoreTiles / 2; ++n) {
        uint32_t k[4];
        if constexpr (kLayout == MmaLayout::panels) {
          load_matrices(k, keys + n * panel_bytes(kHead) + 512 * d);
        } else {
          load_matrices(k, pair_step<kLayout>(keys, d) + 16 * n * kRowBytes);
        }
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          multiply_add<T>(score[r][2 * n], q[r], k[0], k[1]);
          multiply_add<T>(score[r][2 * n + 1], q[r], k[2], k[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void cap(const Softcap<float>& softcap) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) score[r][n][e] = softcap(score[r][n][e]);
      }
    }
  }

  // From row (r, h) all keys but least .. most whose bit of `open` is set. open: shifted by the lane's first column.
  template <bool kMasked>
  __device__ __forceinline__ void hide(int r, int h, int least, int most, uint64_t open) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key = 8 * n + lane % 4 * 2 + e;
        const bool hidden = key > most || key < least || (kMasked && (open >> (8 * n + e) & 1) == 0);
        if (hidden) score[r][n][2 * h + e] = -INFINITY;
      }
    }
  }

  // Scores, times scale in powers of 2, become weights: online softmax. A quad of lanes shares a row.
  __device__ __forceinline__ void weigh(float scale) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float highest[kSteps];
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          highest[s] = -INFINITY;
#pragma unroll
          for (int n = s * kStepTiles; n < (s + 1) * kStepTiles; ++n) {
            highest[s] = fmaxf(highest[s], fmaxf(score[r][n][2 * h], score[r][n][2 * h + 1]));
          }
          highest[s] = fmaxf(highest[s], wave_xor(highest[s], 1));
          highest[s] = fmaxf(highest[s], wave_xor(highest[s], 2));
        }
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          const float base = fmaxf(top[r][h], __fadd_rn(__fmul_rn(highest[s], scale), -kHeadroom));
          const float subtract = base == -INFINITY ? 0.0f : base;
          const float factor = exp2_fast(top[r][h] - subtract);
          top[r][h] = base;
          float total = 0.0f;
#pragma unroll
          for (int n = s * kStepTiles; n < (s + 1) * kStepTiles; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              score[r][n][2 * h + e] = exp2_fast(fmaf(score[r][n][2 * h + e], scale, -subtract));
              total += score[r][n][2 * h + e];
            }
          }
          sum[r][h] = fmaf(sum[r][h], factor, total);
          shrink[s][r][h] = factor;
        }
        if constexpr (kSteps == 1) shrink_out(0, r, h);
      }
    }
  }
  __device__ __forceinline__ void shrink_out(int step, int r, int h) {
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
      out[r][n][2 * h] *= shrink[step][r][h];
      out[r][n][2 * h + 1] *= shrink[step][r][h];
    }
  }

  // The weights times the values at this address of shared memory.
  __device__ __forceinline__ void add_values(uint32_t values) {
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      uint32_t weight[kRowTiles][4], rest[kRowTiles][4];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        if constexpr (kSteps > 1) {
#pragma unroll
          for (int h = 0; h < 2 && 16 * j % kStepKeys == 0; ++h) shrink_out(16 * j / kStepKeys, r, h);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float a = score[r][2 * j + i / 2][i % 2 * 2], b = score[r][2 * j + i / 2][i % 2 * 2 + 1];
          weight[r][i] = pack_pair<T>(a, b);
          if constexpr (kAccurate) {
            const float2 kept = unpack_pair<T>(weight[r][i]);
            rest[r][i] = pack_pair<T>(a - kept.x, b - kept.y);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kHeadTiles / 2; ++n) {
        uint32_t v[4];
        if constexpr (kLayout == MmaLayout::panels) {
          load_matrices(v, values + j * panel_bytes(kHead) + 512 * n);
        } else {
          load_matrices_transposed(v, pair_step<kLayout>(values, n) + 16 * j * kRowBytes);
        }
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          multiply_add<T>(out[r][2 * n], weight[r], v[0], v[1]);
          multiply_add<T>(out[r][2 * n + 1], weight[r], v[2], v[3]);
          if constexpr (kAccurate) {
            multiply_add<T>(out[r][2 * n], rest[r], v[0], v[1]);
            multiply_add<T>(out[r][2 * n + 1], rest[r], v[2], v[3]);
          }
        }
      }
    }
  }

  // The sum of a row's weights, over its quad.
  __device__ __forceinline__ float total(int r, int h) const {
    float all = sum[r][h];
    all += wave_xor(all, 1);
    all += wave_xor(all, 2);
    return all;
  }
};

// What a lane's ldmatrix reads: rows of a first product (queries), of its second (keys), and of values, transposed.
template <int kStride>
__device__ __forceinline__ uint32_t query_fragment(int first_row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return 2 * ((first_row + lane % 16) * kStride + lane / 16 * 8);
}
template <class S>
__device__ __forceinline__ uint32_t key_fragment(int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return tile_place<S>(first_key + lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
template <class S>
__device__ __forceinline__ uint32_t value_fragment(int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return tile_place<S>(first_key + lane % 8 + lane / 8 % 2 * 8, lane / 16);
}
// The same of panels, of keys and of values. A step's 16 rows (keys; elements of values) of two times 8 numbers are 32
// places of 16 bytes: all rows' first 8 before their second, or is_paired, side by side. Rows 4 to 7 of each 8 then
// swap theirs, so that ldmatrix meets no bank twice.
__device__ __forceinline__ int paired_place(int place) {
  return place ^ (place / 8 % 2);
}
template <int kHead>
__device__ __forceinline__ uint32_t panel_fragment(int first_key, bool is_paired) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
  const int place = is_paired ? paired_place(2 * row + half) : 16 * half + row;
  return first_key / 16 * panel_bytes(kHead) + 16 * place;
}

// Walks over tiles of keys and values, S::kStages of both in flight. Queries may be under way as the first group of
// copies. idle: the warp has no rows; it still loads, and meets the barriers. first_key: of the tile, that this warp
// multiplies. adjust(tile): what becomes of the scores before they are weights. kOwn: a warp multiplies the rows that
// it has brought, and only the queries are other warps' work, too. meanwhile(): called while the first tiles are under
// way.
template <class S, bool kOwn = false, class Rows, class Keys, class Values, class Adjust, class Meanwhile>
__device__ __forceinline__ void walk_tiles(Rows& rows, Keys& keys, Values& values, int64_t tiles, uint32_t queries,
                                           uint32_t key_tile, int first_key, bool idle, float scale,
                                           const Adjust& adjust, const Meanwhile& meanwhile) {
  const uint32_t value_tile = key_tile + S::kStages * S::kTileBytes;
  uint32_t of_keys = key_tile, of_values = value_tile;
  if constexpr (S::kLayout == MmaLayout::panels) {
    of_keys += keys.fragment(first_key);
    of_values += values.fragment(first_key);
  } else {
    of_keys += key_fragment<S>(first_key);
    of_values += value_fragment<S>(first_key);
  }
  const auto meet = [] {
    if constexpr (kOwn) {
      wave_sync();
    } else {
      __syncthreads();
    }
  };
  const auto load = [&](int64_t tile, uint32_t stage) {
    if (tile < tiles) keys.load(stage * S::kTileBytes);
    commit_copies();
    if (tile < tiles) values.load(stage * S::kTileBytes);
    commit_copies();
  };
#pragma unroll
  for (uint32_t stage = 0; stage + 1 < S::kStages; ++stage) load(stage, stage);
  meanwhile();
  uint32_t stage = 0, next = S::kStages - 1;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    load(tile + S::kStages - 1, next);
    wait_copies<2 * S::kStages - 1>();  // K of this tile (and Q) are here; V and the next tiles may be under way
    if (kOwn && tile == 0) __syncthreads();
    meet();
    if (!idle) {
      rows.multiply_keys(queries, of_keys + stage * S::kTileBytes);
      adjust(tile);
      rows.weigh(scale);
    }
    wait_copies<2 * S::kStages - 2>();
    meet();
    if (!idle) rows.add_values(of_values + stage * S::kTileBytes);
    meet();  // the next loads overwrite this stage
    next = stage;
    stage = stage + 1 == S::kStages ? 0 : stage + 1;
  }
  wait_copies<0>();
  __syncthreads();
}

}  // namespace rlk::cuda_kernels
