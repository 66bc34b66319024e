// attention for 16-bit tensors on the matrix units of CDNA devices, FlashAttention-2 style.
//
// A wave owns 16 * kRowTiles rows (query, head of the group) and computes transposed products: scores^T = K Q^T, then
// out^T += V^T weights^T. A lane's results are then of one row each, and its weights already lie as the second product
// wants them: between the two only the row's largest score passes from lane to lane. Queries stay in registers, tiles
// of keys and of transposed values are in shared memory, the tile after it in registers on its way.
//
// The weights are rounded to the tensors' dtype before the second product, as every fused kernel of the field does;
// products, sums and the softmax are fp32.
//
// No AMD card has run this. What follows is from the code that Debian's clang 15 makes, and from AMD's tables.
//
// With heads of 128 on gfx90a, large blocks take 214 registers a lane, none in scratch memory, and 19 KiB of shared
// memory: two blocks, two waves of each SIMD, share a compute unit. Small blocks take 150: three. gfx940 has the same
// within four registers. Softcap and key_mask take 161 to 197, and 242 with heads of 256, whose 37 KiB leave room for
// one block. gfx908 adds in accumulation registers alone and moves a large block's output there and back, 128 moves a
// tile.
//
// A tile of 32 keys is for a wave of 32 rows 64 products of 32 cycles (16 on gfx940 and later), 16 reads of 16 bytes a
// lane, which are a quarter (half) of what shared memory gives meanwhile, and some 400 vector instructions, exponents
// and rounding to bf16 above all: about 1600 cycles beside 2048 (1024) of products, which the other wave's fill. So the
// vector unit would bound gfx940 and later.
#pragma once

#include "attention_mfma_tiles.cuh"

namespace rlk::rocm_kernels {

// A wave's rows: scores of a tile, what the exponents have subtracted, sums of weights, and weighted values. This
// lane's row of tile r is 16 r + lane % 16; element e of out[r][n] is column mfma_column(n, e), of score[r][t] key
// mfma_column(t, e).
template <class S, class T>
struct MfmaRows {
  static constexpr int kScores = S::kKeys / 16, kColumns = S::kHead / 16, kSteps = S::kHead / 32;
  // Weights are kept times 2^kHeadroom: small f16 weights would otherwise lose bits to subnormals.
  static constexpr float kHeadroom = kIsBf16<T> ? 0.0f : 10.0f;
  const int lane;
  float top[S::kRowTiles], sum[S::kRowTiles];
  uint4 query[S::kRowTiles][kSteps];
  Quad out[S::kRowTiles][kColumns], score[S::kRowTiles][kScores];

  __device__ __forceinline__ MfmaRows() : lane(static_cast<int>(threadIdx.x) % 64) {
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
      top[r] = -INFINITY;
      sum[r] = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) out[r][n] = Quad{};
    }
  }

  // from: the row's first element, nullptr where there is no row.
  __device__ __forceinline__ void load_query(int r, const T* from, int head_size) {
#pragma unroll
    for (int c = 0; c < kSteps; ++c) {
      const int column = 32 * c + lane / 16 * 8;
      query[r][c] = uint4{0, 0, 0, 0};
      if (from != nullptr && column < head_size) query[r][c] = *reinterpret_cast<const uint4*>(from + column);
    }
  }

  __device__ __forceinline__ void multiply_keys(const T* tile) {
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
#pragma unroll
      for (int t = 0; t < kScores; ++t) score[r][t] = Quad{};
    }
    const T* const mine = tile + lane % 16 * S::kKeyStride + lane / 16 * 8;
#pragma unroll
    for (int c = 0; c < kSteps; ++c) {
#pragma unroll
      for (int t = 0; t < kScores; ++t) {
        const uint4 k = *reinterpret_cast<const uint4*>(mine + 16 * t * S::kKeyStride + 32 * c);
#pragma unroll
        for (int r = 0; r < S::kRowTiles; ++r) {
          multiply_add<T>(score[r][t], k.x, k.y, query[r][c].x, query[r][c].y);
        }
#pragma unroll
        for (int r = 0; r < S::kRowTiles; ++r) {
          multiply_add<T>(score[r][t], k.z, k.w, query[r][c].z, query[r][c].w);
        }
      }
    }
  }

  __device__ __forceinline__ void cap(const Softcap<float>& softcap) {
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
#pragma unroll
      for (int t = 0; t < kScores; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) score[r][t][e] = softcap(score[r][t][e]);
      }
    }
  }

  // From this lane's row of tile r all keys but least .. most whose bit of `open` is set.
  __device__ __forceinline__ void hide(int r, int least, int most, uint64_t open) {
#pragma unroll
    for (int t = 0; t < kScores; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = mfma_column(t, e, lane);
        if (key > most || key < least || (open >> key & 1) == 0) score[r][t][e] = -INFINITY;
      }
    }
  }

  // Scores, times scale in powers of 2, become weights: online softmax. Four lanes share a row.
  __device__ __forceinline__ void weigh(float scale) {
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
      float highest = -INFINITY;
#pragma unroll
      for (int t = 0; t < kScores; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) highest = fmaxf(highest, score[r][t][e]);
      }
      highest = fmaxf(highest, wave_xor(highest, 16));
      highest = fmaxf(highest, wave_xor(highest, 32));
      const float base = fmaxf(top[r], highest * scale - kHeadroom);
      const float subtract = base == -INFINITY ? 0.0f : base;
      const float factor = exp2_fast(top[r] - subtract);
      top[r] = base;
      float total = 0.0f;
#pragma unroll
      for (int t = 0; t < kScores; ++t) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          score[r][t][e] = exp2_fast(fmaf(score[r][t][e], scale, -subtract));
          total += score[r][t][e];
        }
      }
      sum[r] = fmaf(sum[r], factor, total);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) out[r][n] *= factor;
    }
  }

  __device__ __forceinline__ void add_values(const T* tile) {
    const T* const mine = tile + S::kValuesAt + lane % 16 * S::kValueStride + lane / 16 * 8;
#pragma unroll
    for (int p = 0; p < kScores / 2; ++p) {
      uint32_t weight[S::kRowTiles][4];
#pragma unroll
      for (int r = 0; r < S::kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Quad of = score[r][2 * p + i / 2];
          weight[r][i] = narrow_pair(of[i % 2 * 2], of[i % 2 * 2 + 1], T());
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const uint4 v = *reinterpret_cast<const uint4*>(mine + 16 * n * S::kValueStride + 32 * p);
#pragma unroll
        for (int r = 0; r < S::kRowTiles; ++r) multiply_add<T>(out[r][n], v.x, v.y, weight[r][0], weight[r][1]);
#pragma unroll
        for (int r = 0; r < S::kRowTiles; ++r) multiply_add<T>(out[r][n], v.z, v.w, weight[r][2], weight[r][3]);
      }
    }
  }

  // The sum of a row's weights, over its four lanes.
  __device__ __forceinline__ float total(int r) const {
    float all = sum[r];
    all += wave_xor(all, 16);
    all += wave_xor(all, 32);
    return all;
  }

  // The row's output; nothing where `to` is nullptr.
  __device__ __forceinline__ void store(int r, float all, T* to, int head_size) const {
    if (to == nullptr) return;
    const float inverse = all == 0.0f ? 0.0f : 1.0f / all;
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      const int column = mfma_column(n, 0, lane);
      if (column >= head_size) continue;
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Quad of = out[r][n + i / 2];
        word[i] = narrow_pair(of[i % 2 * 2] * inverse, of[i % 2 * 2 + 1] * inverse, T());
      }
      *reinterpret_cast<uint4*>(to + column) = uint4{word[0], word[1], word[2], word[3]};
    }
  }
};

// kOptions: knows softcap and key_mask.
template <class T, class S, bool kOptions>
__device__ __forceinline__ void attention_mfma(const AttentionArgs& args) {
  T* const tile = reinterpret_cast<T*>(dynamic_shared());
  if (fill_nan_if_bad<T>(args)) return;
  const AttentionWork work = find_work(args, args.first_block + blockIdx.x);
  if (work.valid == 0) return;

  const int64_t left_rows = work.queries * args.group - work.first_row;
  const int valid_rows = static_cast<int>(left_rows < S::kBlockRows ? left_rows : S::kBlockRows);
  // The keys that any row sees, and those that every row sees: bounds grow with the query.
  const int64_t first_query = work.first_row / args.group;
  const int first_offset = static_cast<int>(work.first_row - first_query * args.group);
  const int64_t last_query = (work.first_row + valid_rows - 1) / args.group;
  const KeyRange low = visible_keys(args, work, first_query), high = visible_keys(args, work, last_query);
  const int64_t first_tile = low.first / S::kKeys;
  const int64_t last_tile = high.last < low.first ? first_tile - 1 : high.last / S::kKeys;

  MfmaRows<S, T> rows;
  const int first_of_wave = static_cast<int>(threadIdx.x) / 64 * 16 * S::kRowTiles;
  const bool idle = first_of_wave >= valid_rows;
  int query_of[S::kRowTiles], head_of[S::kRowTiles];  // minus first_query; -1: there is no row
#pragma unroll
  for (int r = 0; r < S::kRowTiles; ++r) {
    const int row = first_of_wave + 16 * r + rows.lane % 16, at = first_offset + row;
    query_of[r] = row < valid_rows ? at / args.group : -1;
    head_of[r] = work.kv_head * args.group + at % args.group;
    const T* from = query_of[r] < 0
                        ? nullptr
                        : tensor_row<const T>(args.q, work.batch, work.q_token + first_query + query_of[r], head_of[r]);
    rows.load_query(r, from, args.head_size);
  }

  const KeyMask mask = kOptions ? key_mask_of(args, work) : KeyMask{};
  const auto open_keys = [&](int64_t of_tile) {
    return kOptions && of_tile <= last_tile ? unmasked_keys<64>(mask, work.keys, of_tile * S::kKeys) : ~uint64_t{0};
  };
  // Scores in powers of 2; a softcap leaves them so.
  const float scale = kOptions && args.softcap > 0 ? 1.0f : static_cast<float>(args.scale * 1.4426950408889634074);
  // Query q of the block, counted from its first, sees keys first_seen + q to last_seen + q.
  constexpr int64_t kFar = int64_t{1} << 60;
  const int64_t centre = first_query + diagonal_of(args, work);
  const int64_t first_seen = args.window_left < 0 ? -kFar : centre - args.window_left;
  const int64_t last_seen = args.window_right < 0 ? kFar : centre + args.window_right;
  MfmaLoader<S, T> loader(args, work, first_tile * S::kKeys);
  uint64_t open = open_keys(first_tile);
  if (first_tile <= last_tile) loader.load(open);
  for (int64_t now = first_tile; now <= last_tile; ++now) {
    __syncthreads();  // the tile before is no longer read
    loader.store(tile);
    __syncthreads();
    const uint64_t open_next = open_keys(now + 1);
    if (now < last_tile) loader.load(open_next);
    if (!idle) {
      rows.multiply_keys(tile);
      if (kOptions && args.softcap > 0) rows.cap(Softcap<float>(args));
      const int64_t first_key = now * S::kKeys;
      if (first_key < high.first || first_key + S::kKeys - 1 > low.last || (kOptions && mask.data != nullptr)) {
        const int last = clamp_to_tile(work.keys - 1 - first_key);
        const int right = clamp_to_tile(last_seen - first_key), left = clamp_to_tile(first_seen - first_key);
#pragma unroll
        for (int r = 0; r < S::kRowTiles; ++r) {
          const int most = right + query_of[r] < last ? right + query_of[r] : last;
          rows.hide(r, left + query_of[r], most, open);
        }
      }
      rows.weigh(scale);
      rows.add_values(tile);
    }
    open = open_next;
  }
  if (idle) return;

#pragma unroll
  for (int r = 0; r < S::kRowTiles; ++r) {
    const float all = rows.total(r);
    if (query_of[r] < 0) continue;
    const int64_t query = first_query + query_of[r];
    rows.store(r, all, tensor_row<T>(args.out, work.batch, work.q_token + query, head_of[r]), args.head_size);
    if (args.lse == nullptr || rows.lane >= 16) continue;
    static_cast<float*>(args.lse)[(work.lse_token + query) * args.q_heads + head_of[r]] =
        all == 0.0f ? -INFINITY
                    : static_cast<float>((double(rows.top[r]) + log2(double(all))) * 0.69314718055994530942);
  }
}

}  // namespace rlk::rocm_kernels
