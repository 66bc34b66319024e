// attention for 16-bit tensors on tensor cores (sm_80 and later), FlashAttention-2 style.
//
// A block holds kBlockRows query rows in shared memory and walks over key tiles, two stages of K and V in flight
// through cp.async. A warp owns 16 * kRowTiles rows: scores, softmax state and output stay in its registers, so K and V
// fragments serve kRowTiles products each. Rows of shared memory are padded by 16 bytes: ldmatrix meets no bank twice.
// Cost: 4 Lq Lk D operations a head; shared memory traffic, not the tensor cores, is what 16 rows a warp would run
// into.
//
// The weights are rounded to the tensors' dtype before the second product, as every fused kernel of the field does. The
// accurate kernels multiply them as two 16-bit numbers, what that rounding loses included: half as much matrix work
// again, and the output is right to fp32 before its own rounding.
#pragma once

#include "../../simt/attention.cuh"
#include "mma.cuh"

namespace rlk::cuda_kernels {

using namespace simt;

template <int kHead_, int kWarps_, int kRowTiles_>
struct MmaShape {
  static constexpr int kHead = kHead_;  // head size, padded
  static constexpr int kWarps = kWarps_;
  static constexpr int kRowTiles = kRowTiles_;             // of 16 rows, per warp
  static constexpr int kKeys = attention_mma_keys(kHead);  // of a tile
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlockRows = kWarps * kRowTiles * 16;
  static constexpr int kStride = attention_mma_stride(kHead);  // of a row in shared memory, elements
};

// Brings the key (or value) tiles of one sequence into shared memory, one after the other. A thread keeps its column
// and steps down the rows; rows beyond the sequence, masked rows and columns beyond the head size become 0.
template <class S, class T, bool kOptions>
struct TileLoader {
  static constexpr int kChunks = S::kHead / 8;
  static constexpr int kRowsAtOnce = S::kThreads / kChunks;  // a remainder of the threads has nothing to do
  const T* from;                                             // this thread's row of the next tile
  int64_t stride;                                            // of a row, elements
  uint32_t to;                                               // this thread's place in stage 0
  int64_t left;         // rows of the sequence from this thread's row on; none for an idle thread
  const uint8_t* mask;  // of this thread's row of the next tile; nullptr: no row is masked
  int64_t mask_stride;

  __device__ __forceinline__ TileLoader(const T* sequence, int64_t token_stride, int64_t first_key, int64_t keys,
                                        int head_size, uint32_t shared_tile, const AttentionArgs& args,
                                        const AttentionWork& work) {
    const int row = static_cast<int>(threadIdx.x) / kChunks, column = static_cast<int>(threadIdx.x) % kChunks * 8;
    from = sequence + (first_key + row) * token_stride + column;
    stride = token_stride;
    to = shared_tile + 2 * (row * S::kStride + column);
    left = column < head_size ? keys - first_key - row : 0;
    mask_stride = args.mask_key_stride;
    mask = kOptions ? args.key_mask : nullptr;
    if (kOptions && mask != nullptr) mask += work.batch * args.mask_batch_stride + (first_key + row) * mask_stride;
  }

  __device__ __forceinline__ void load(uint32_t stage_bytes) {
    if (static_cast<int>(threadIdx.x) < kRowsAtOnce * kChunks) {
      const int rows = static_cast<int>(left < S::kKeys ? left : S::kKeys);
      const int first = static_cast<int>(threadIdx.x) / kChunks;
      const T* row = from;
#pragma unroll
      for (int r = 0; r < S::kKeys; r += kRowsAtOnce) {
        if (r + first < S::kKeys) {
          const bool open = r < rows && (!kOptions || mask == nullptr || mask[r * mask_stride] != 0);
          copy_async_16(to + stage_bytes + 2 * r * S::kStride, row, open);
        }
        row += kRowsAtOnce * stride;
      }
    }
    from += S::kKeys * stride;
    left -= S::kKeys;
    if (kOptions && mask != nullptr) mask += S::kKeys * mask_stride;
  }
};

// kOptions: knows softcap and key_mask, which cost registers.
template <class T, class S, bool kAccurate, bool kOptions>
__device__ __forceinline__ void attention_mma(const AttentionArgs& args) {
  constexpr int kRowTiles = S::kRowTiles, kKeys = S::kKeys, kHead = S::kHead;
  constexpr int kScoreTiles = kKeys / 8, kHeadTiles = kHead / 8;
  // Weights are kept times 2^kHeadroom: small f16 weights, and second halves, would otherwise lose bits to subnormals.
  constexpr float kHeadroom = kIsBf16<T> ? 0.0f : 10.0f;
  unsigned char* const shared = dynamic_shared();
  if (fill_nan_if_bad<T>(args)) return;
  const AttentionWork work = find_work(args, args.first_block + blockIdx.x);
  if (work.valid == 0) return;

  const uint32_t query_tile = shared_address(shared);
  const uint32_t key_tile = query_tile + 2 * S::kStride * S::kBlockRows;
  constexpr uint32_t kTileBytes = 2 * S::kStride * kKeys;
  const uint32_t value_tile = key_tile + 2 * kTileBytes;

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t rows = work.queries * args.group;
  const int64_t left_rows = rows - work.first_row;
  const int valid_rows = static_cast<int>(left_rows < S::kBlockRows ? left_rows : S::kBlockRows);
  const T* keys = tensor_row<const T>(args.k, work.batch, work.k_token, work.kv_head);
  const T* values = tensor_row<const T>(args.v, work.batch, work.k_token, work.kv_head);

  // The keys that any row sees, and those that every row sees: bounds grow with the query.
  const int64_t first_query = work.first_row / args.group;
  const int first_offset = static_cast<int>(work.first_row - first_query * args.group);
  const int64_t last_query = (work.first_row + valid_rows - 1) / args.group;
  const KeyRange low = visible_keys(args, work, first_query), high = visible_keys(args, work, last_query);
  const int64_t first_tile = low.first / kKeys;
  const int64_t tiles = high.last < low.first ? 0 : high.last / kKeys + 1 - first_tile;

  {
    constexpr int kChunks = kHead / 8;
    for (int i = static_cast<int>(threadIdx.x); i < S::kBlockRows * kChunks; i += S::kThreads) {
      const int row = i / kChunks, column = i % kChunks * 8;
      const bool ok = row < valid_rows && column < args.head_size;
      const int at = first_offset + (ok ? row : 0);
      const T* from = tensor_row<const T>(args.q, work.batch, work.q_token + first_query + at / args.group,
                                          work.kv_head * args.group + at % args.group);
      copy_async_16(query_tile + 2 * (row * S::kStride + column), from + (ok ? column : 0), ok);
    }
  }
  TileLoader<S, T, kOptions> key_loader(keys, args.k.token_stride, first_tile * kKeys, work.keys, args.head_size,
                                        key_tile, args, work);
  TileLoader<S, T, kOptions> value_loader(values, args.v.token_stride, first_tile * kKeys, work.keys, args.head_size,
                                          value_tile, args, work);
  if (tiles > 0) key_loader.load(0);
  commit_copies();
  if (tiles > 0) value_loader.load(0);
  commit_copies();

  // This thread's rows of the block are warp * 16 * kRowTiles + 16 r + lane / 4 + 8 h.
  const int warp_row = warp * 16 * kRowTiles;
  const bool idle = warp_row >= valid_rows;    // it still loads, and meets the barriers
  int query_of[kRowTiles][2];                  // minus first_query
  float top[kRowTiles][2], sum[kRowTiles][2];  // what the exponents have subtracted; of the weights
  float out[kRowTiles][kHeadTiles][4];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      query_of[r][h] = (first_offset + warp_row + 16 * r + lane / 4 + 8 * h) / args.group;
      top[r][h] = -INFINITY;
      sum[r][h] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[r][n][e] = 0.0f;
    }
  }
  // Scores in powers of 2; a softcap leaves them so.
  const float scale = kOptions && args.softcap > 0 ? 1.0f : static_cast<float>(args.scale * 1.4426950408889634074);
  const uint32_t query_fragment = query_tile + 2 * ((warp_row + lane % 16) * S::kStride + lane / 16 * 8);
  const uint32_t key_fragment = 2 * ((lane % 8 + lane / 16 * 8) * S::kStride + lane / 8 % 2 * 8);
  const uint32_t value_fragment = 2 * ((lane % 8 + lane / 8 % 2 * 8) * S::kStride + lane / 16 * 8);

  for (int64_t tile = 0; tile < tiles; ++tile) {
    const uint32_t stage = tile % 2 == 0 ? 0 : kTileBytes;
    if (tile + 1 < tiles) key_loader.load(kTileBytes - stage);
    commit_copies();
    if (tile + 1 < tiles) value_loader.load(kTileBytes - stage);
    commit_copies();
    wait_copies<3>();  // K of this tile (and Q) are here; V and the next tile may be under way
    __syncthreads();

    float score[kRowTiles][kScoreTiles][4];
    if (!idle) {
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
        for (int r = 0; r < kRowTiles; ++r) load_matrices(q[r], query_fragment + 2 * (16 * r * S::kStride + 16 * d));
#pragma unroll
        for (int n = 0; n < kScoreTiles / 2; ++n) {
          uint32_t k[4];
          load_matrices(k, key_tile + stage + key_fragment + 2 * (16 * n * S::kStride + 16 * d));
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
            multiply_add<T>(score[r][2 * n], q[r], k[0], k[1]);
            multiply_add<T>(score[r][2 * n + 1], q[r], k[2], k[3]);
          }
        }
      }

      if (kOptions && args.softcap > 0) {
        const Softcap<float> cap(args);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
          for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) score[r][n][e] = cap(score[r][n][e]);
          }
        }
      }

      const int64_t first_key = (first_tile + tile) * kKeys;
      if (first_key < high.first || first_key + kKeys - 1 > low.last || (kOptions && args.key_mask != nullptr)) {
        const uint64_t open = kOptions ? unmasked_keys<kKeys>(args, work, first_key) >> lane % 4 * 2 : 0;
        const int64_t centre = first_query + diagonal_of(args, work) - first_key;
        const int last = clamp_to_tile(work.keys - 1 - first_key);
        const int right = args.window_right < 0 ? 1 << 20 : clamp_to_tile(centre + args.window_right);
        const int left = args.window_left < 0 ? -(1 << 21) : clamp_to_tile(centre - args.window_left);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int most = min(last, right + query_of[r][h]), least = left + query_of[r][h];
#pragma unroll
            for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                const int key = 8 * n + lane % 4 * 2 + e;
                const bool hidden = key > most || key < least || (kOptions && (open >> (8 * n + e) & 1) == 0);
                if (hidden) score[r][n][2 * h + e] = -INFINITY;
              }
            }
          }
        }
      }

      // Online softmax: a quad of lanes shares a row.
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float highest = -INFINITY;
#pragma unroll
          for (int n = 0; n < kScoreTiles; ++n) {
            highest = fmaxf(highest, fmaxf(score[r][n][2 * h], score[r][n][2 * h + 1]));
          }
          highest = fmaxf(highest, wave_xor(highest, 1));
          highest = fmaxf(highest, wave_xor(highest, 2));
          const float base = fmaxf(top[r][h], __fadd_rn(__fmul_rn(highest, scale), -kHeadroom));
          const float subtract = base == -INFINITY ? 0.0f : base;
          const float factor = exp2_fast(top[r][h] - subtract);
          top[r][h] = base;
          float total = 0.0f;
#pragma unroll
          for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              score[r][n][2 * h + e] = exp2_fast(fmaf(score[r][n][2 * h + e], scale, -subtract));
              total += score[r][n][2 * h + e];
            }
          }
          sum[r][h] = fmaf(sum[r][h], factor, total);
#pragma unroll
          for (int n = 0; n < kHeadTiles; ++n) {
            out[r][n][2 * h] *= factor;
            out[r][n][2 * h + 1] *= factor;
          }
        }
      }
    }

    wait_copies<2>();
    __syncthreads();
    if (!idle) {
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t weight[kRowTiles][4], rest[kRowTiles][4];
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
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
          load_matrices_transposed(v, value_tile + stage + value_fragment + 2 * (16 * j * S::kStride + 16 * n));
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
    __syncthreads();  // the next loads overwrite this stage
  }
  wait_copies<0>();
  __syncthreads();
  if (idle) return;

    // Out through this warp's own query rows, to leave in 16-byte accesses.
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[r][h];
      total += wave_xor(total, 1);
      total += wave_xor(total, 2);
      const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
      const int row = warp_row + 16 * r + lane / 4 + 8 * h;
      T* to = reinterpret_cast<T*>(shared) + row * S::kStride + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) {
        *reinterpret_cast<uint32_t*>(to + 8 * n) =
            pack_pair<T>(out[r][n][2 * h] * inverse, out[r][n][2 * h + 1] * inverse);
      }
      if (args.lse != nullptr && lane % 4 == 0 && row < valid_rows) {
        const int at = first_offset + row;
        const float lse = total == 0.0f
                              ? -INFINITY
                              : static_cast<float>((double(top[r][h]) + log2(double(total))) * 0.69314718055994530942);
        static_cast<float*>(args.lse)[(work.lse_token + first_query + at / args.group) * args.q_heads +
                                      work.kv_head * args.group + at % args.group] = lse;
      }
    }
  }
  wave_sync();
  constexpr int kChunks = kHead / 8;
#pragma unroll 4
  for (int i = lane; i < 16 * kRowTiles * kChunks; i += 32) {
    const int row = warp_row + i / kChunks, column = i % kChunks * 8;
    if (row >= valid_rows || column >= args.head_size) continue;
    const int at = first_offset + row;
    T* to = tensor_row<T>(args.out, work.batch, work.q_token + first_query + at / args.group,
                          work.kv_head * args.group + at % args.group);
    *reinterpret_cast<uint4*>(to + column) =
        *reinterpret_cast<const uint4*>(reinterpret_cast<const T*>(shared) + row * S::kStride + column);
  }
}

}  // namespace rlk::cuda_kernels
