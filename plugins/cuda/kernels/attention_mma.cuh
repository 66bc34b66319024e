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

#include "mma_tiles.cuh"

namespace rlk::cuda_kernels {

// kOptions: knows softcap and key_mask, which cost registers.
template <class T, class S, bool kAccurate, bool kOptions>
__device__ __forceinline__ void attention_mma(const AttentionArgs& args) {
  constexpr int kRowTiles = S::kRowTiles, kKeys = S::kKeys, kHead = S::kHead;
  constexpr int kHeadTiles = kHead / 8;
  unsigned char* const shared = dynamic_shared();
  if (fill_nan_if_bad<T>(args)) return;
  const AttentionWork work = find_work(args, args.first_block + blockIdx.x);
  if (work.valid == 0) return;

  const uint32_t query_tile = shared_address(shared);
  const uint32_t key_tile = query_tile + 2 * S::kStride * S::kBlockRows;

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
  const KeyMask mask = kOptions ? key_mask_of(args, work) : KeyMask{};
  TileLoader<S, T, kOptions> key_loader(keys, args.k.token_stride, first_tile * kKeys, work.keys, args.head_size,
                                        key_tile, mask);
  TileLoader<S, T, kOptions> value_loader(values, args.v.token_stride, first_tile * kKeys, work.keys, args.head_size,
                                          key_tile + 4 * S::kStride * kKeys, mask);

  const int warp_row = warp * 16 * kRowTiles;  // the warp's first
  const bool idle = warp_row >= valid_rows;
  int query_of[kRowTiles][2];  // minus first_query
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      query_of[r][h] = (first_offset + warp_row + 16 * r + lane / 4 + 8 * h) / args.group;
    }
  }
  // Scores in powers of 2; a softcap leaves them so.
  const float scale = kOptions && args.softcap > 0 ? 1.0f : static_cast<float>(args.scale * 1.4426950408889634074);
  MmaRows<T, kHead, S::kStride, kRowTiles, kKeys, kAccurate> state;
  const auto adjust = [&](int64_t tile) {
    if (kOptions && args.softcap > 0) state.cap(Softcap<float>(args));
    const int64_t first_key = (first_tile + tile) * kKeys;
    if (first_key >= high.first && first_key + kKeys - 1 <= low.last && (!kOptions || mask.data == nullptr)) return;
    const uint64_t open = kOptions ? unmasked_keys<kKeys>(mask, work.keys, first_key) >> lane % 4 * 2 : 0;
    const int64_t centre = first_query + diagonal_of(args, work) - first_key;
    const int last = clamp_to_tile(work.keys - 1 - first_key);
    const int right = args.window_right < 0 ? 1 << 20 : clamp_to_tile(centre + args.window_right);
    const int left = args.window_left < 0 ? -(1 << 21) : clamp_to_tile(centre - args.window_left);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        state.template hide<kOptions>(r, h, left + query_of[r][h], min(last, right + query_of[r][h]), open);
      }
    }
  };
  walk_tiles<S>(state, key_loader, value_loader, tiles, query_tile + query_fragment<S::kStride>(warp_row), key_tile, 0,
                idle, scale, adjust, [] {});
  if (idle) return;

    // Out through this warp's own query rows, to leave in 16-byte accesses.
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = state.total(r, h);
      const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
      const int row = warp_row + 16 * r + lane / 4 + 8 * h;
      T* to = reinterpret_cast<T*>(shared) + row * S::kStride + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) {
        *reinterpret_cast<uint32_t*>(to + 8 * n) =
            pack_pair<T>(state.out[r][n][2 * h] * inverse, state.out[r][n][2 * h + 1] * inverse);
      }
      if (args.lse != nullptr && lane % 4 == 0 && row < valid_rows) {
        const int at = first_offset + row;
        const float lse =
            total == 0.0f
                ? -INFINITY
                : static_cast<float>((double(state.top[r][h]) + log2(double(total))) * 0.69314718055994530942);
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
