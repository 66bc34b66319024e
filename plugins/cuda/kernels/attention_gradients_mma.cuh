// The gradients of attention for 16-bit tensors on tensor cores (sm_80 and later): the tiles of
// ../../simt/attention_gradients.cuh, whose terms, work and owners these are, multiplied by mma.
//
// A block of 8 warps holds its own tile (rows or keys) and a streamed one in shared memory, whole heads of them. Of the
// scores, warp w makes 16 streamed times 32 own; of the gradients, 16 own times half of the head. Weights and score
// gradients are rounded to the tensors' dtype between the two, as every fused kernel of the field does, and pass
// through shared memory, where a transposed ldmatrix turns them.
#pragma once

#include "../../simt/attention_gradient_sides.cuh"
#include "mma.cuh"

namespace rlk::cuda_kernels {

using namespace simt;

// The gradient of a score as its dtype can hold it: fp16 ends at 65504, and infinity times a key's 0 would be a NaN.
template <class T>
__device__ __forceinline__ float within(float ds) {
  return ds;
}
template <>
__device__ __forceinline__ float within<f16>(float ds) {
  return ds > 65504.0f ? 65504.0f : ds < -65504.0f ? -65504.0f : ds;
}

template <class T, int kHead, bool kOfKeys>
struct MmaGradientTile {
  static constexpr int kTile = gradient_tile(4), kStride = kHead + 8, kWeightStride = kTile + 8;
  static constexpr uint32_t kTileBytes = gradient_mma_tile_bytes(kHead);
  static constexpr int kHalfTiles = kHead / 16;  // of 8 columns, in half of the head
  using Sides = GradientSides<T, kTile>;
  using Gradient = float[kHalfTiles][4];
  static_assert(gradient_mma_tile_bytes(kHead) == 2 * kTile * kStride, "what the host asks for");

  const AttentionGradientArgs& args;
  Sides& sides;
  unsigned char* const memory;
  const uint32_t own, streamed, weights;  // of two tiles each; of weights only keys need both
  const int lane, upper, column;          // of the warp: its 16 of one side, its part of the other

  __device__ __forceinline__ MmaGradientTile(const AttentionGradientArgs& arguments, Sides& of_block,
                                             unsigned char* shared)
      : args(arguments),
        sides(of_block),
        memory(shared),
        own(shared_address(shared)),
        streamed(own + 2 * kTileBytes),
        weights(streamed + 2 * kTileBytes),
        lane(static_cast<int>(threadIdx.x) % 32),
        upper(static_cast<int>(threadIdx.x) / 32 % 4 * 16),
        column(static_cast<int>(threadIdx.x) / 128) {}

  // Both tensors of a side; zeros where there is nothing, and beyond the head size.
  __device__ __forceinline__ void load(const T* const (&from)[2][kTile], uint32_t to) const {
    constexpr int kChunks = kHead / 8;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kChunks; i += kGradientThreads) {
      const int row = i / kChunks, at = i % kChunks * 8;
      const T *const first = from[0][row], *const second = from[1][row];
      const bool ok = first != nullptr && at < args.head_size;
      const uint32_t place = to + 2 * (row * kStride + at);
      if (ok) {
        copy_async_16(place, first + at);
        copy_async_16(place + kTileBytes, second + at);
      } else {
        zero_16(place);
        zero_16(place + kTileBytes);
      }
    }
    commit_copies();
    wait_copies<0>();
  }

  // c[n] is columns 8 n of the warp's 32 own, of its 16 streamed.
  __device__ __forceinline__ void multiply(uint32_t left, uint32_t right, float (&c)[4][4]) const {
    const uint32_t a_at = left + 2 * ((upper + lane % 16) * kStride + lane / 16 * 8);
    const uint32_t b_at = right + 2 * ((32 * column + lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 8);
#pragma unroll 2
    for (int d = 0; d < kHead; d += 16) {
      uint32_t a[4];
      load_matrices(a, a_at + 2 * d);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        uint32_t b[4];
        load_matrices(b, b_at + 2 * (16 * n * kStride + d));
        multiply_add<T>(c[2 * n], a, b[0], b[1]);
        multiply_add<T>(c[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void set_weights(int which, const float (&c)[4][4]) const {
    T* const to = reinterpret_cast<T*>(memory + 4 * kTileBytes) + which * kTile * kWeightStride;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = (upper + lane / 4 + 8 * h) * kWeightStride + 32 * column + 8 * n + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(to + at) = pack_pair<T>(c[n][2 * h], c[n][2 * h + 1]);
      }
    }
  }

  // gradient += weights^T values: of the warp's 16 own, half of the head.
  __device__ __forceinline__ void add_weighted(int which, uint32_t values, Gradient& gradient) const {
    const uint32_t a_at = weights + 2 * (which * kTile * kWeightStride + (lane % 8 + lane / 16 * 8) * kWeightStride +
                                         upper + lane / 8 % 2 * 8);
    const uint32_t b_at = values + 2 * ((lane % 8 + lane / 8 % 2 * 8) * kStride + column * (kHead / 2) + lane / 16 * 8);
#pragma unroll 1
    for (int s = 0; s < kTile; s += 16) {
      uint32_t a[4];
      load_matrices_transposed(a, a_at + 2 * s * kWeightStride);
#pragma unroll
      for (int n = 0; n < kHalfTiles / 2; ++n) {
        uint32_t b[4];
        load_matrices_transposed(b, b_at + 2 * (s * kStride + 16 * n));
        multiply_add<T>(gradient[2 * n], a, b[0], b[1]);
        multiply_add<T>(gradient[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // A streamed tile, whose sides are set, against the own one. first_key: of the tile of keys.
  __device__ __forceinline__ void step(int64_t first_key, Gradient& of_first, Gradient& of_second) const {
    __syncthreads();
    load(kOfKeys ? sides.rows : sides.keys, streamed);
    __syncthreads();
    float score[4][4] = {}, dp[4][4] = {};
    multiply(streamed, own, score);
    multiply(streamed + kTileBytes, own + kTileBytes, dp);
    const GradientScores<float> scores(args);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = upper + lane / 4 + 8 * (e / 2), of_own = 32 * column + 8 * n + lane % 4 * 2 + e % 2;
        const int row = kOfKeys ? at : of_own, key = kOfKeys ? of_own : at;
        scores.weigh(sides.terms[row], score[n][e], dp[n][e]);
        const bool sees = sides.sees(row, first_key, key);
        score[n][e] = sees ? score[n][e] : 0.0f;
        dp[n][e] = sees ? within<T>(dp[n][e]) : 0.0f;
      }
    }
    set_weights(0, dp);
    if (kOfKeys) set_weights(1, score);
    __syncthreads();
    add_weighted(0, streamed, of_first);
    if (kOfKeys) add_weighted(1, streamed + kTileBytes, of_second);
  }

  static __device__ __forceinline__ void put_pair(T* to, float low, float high) {
    *reinterpret_cast<uint32_t*>(to) = pack_pair<T>(low, high);
  }
  static __device__ __forceinline__ void put_pair(float* to, float low, float high) {
    to[0] = low;
    to[1] = high;
  }
  // to(row or key of the tile): where its gradient begins, or its sum in fp32; nullptr where there is none.
  template <class To>
  __device__ __forceinline__ void store(const Gradient& gradient, float factor, const To& to) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = upper + lane / 4 + 8 * h;
      auto* const row = to(at);
      if (row == nullptr) continue;
      // A hidden key has no gradient, also where a weight of 0 has met a NaN.
      const bool is_hidden = kOfKeys && sides.keys[0][at] == nullptr;
#pragma unroll
      for (int n = 0; n < kHalfTiles; ++n) {
        const int first = column * (kHead / 2) + 8 * n;
        if (first >= args.head_size) break;
        put_pair(row + first + lane % 4 * 2, is_hidden ? 0.0f : gradient[n][2 * h] * factor,
                 is_hidden ? 0.0f : gradient[n][2 * h + 1] * factor);
      }
    }
  }
};

template <class T, int kHead>
__device__ __forceinline__ void attention_gradients_mma_rows(const AttentionGradientArgs& args) {
  using Tile = MmaGradientTile<T, kHead, false>;
  __shared__ typename Tile::Sides sides;
  if (fill_nan_if_bad<T>(args, true)) return;
  // In shared memory, where it takes no registers beside the gradients.
  __shared__ GradientWork work;
  if (threadIdx.x == 0) work = find_gradient_work(args, args.first_block + blockIdx.x, Tile::kTile, kHead, true);
  __syncthreads();
  if (work.valid == 0) return;
  const Tile tile(args, sides, dynamic_shared());
  sides.set_rows(args, work, work.first);
  __syncthreads();
  tile.load(sides.rows, tile.own);
  const StreamedRange keys = streamed_keys(args, work, Tile::kTile);
  typename Tile::Gradient gradient = {};
  for (int64_t from = keys.first / Tile::kTile * Tile::kTile; from < keys.end; from += Tile::kTile) {
    __syncthreads();
    sides.set_keys(args, work, from);
    tile.step(from, gradient, gradient);
  }
  tile.store(gradient, static_cast<float>(args.scale), [&](int at) { return row_gradient<T>(args, work, at); });
}

template <class T, int kHead>
__device__ __forceinline__ void attention_gradients_mma_keys(const AttentionGradientArgs& args) {
  using Tile = MmaGradientTile<T, kHead, true>;
  __shared__ typename Tile::Sides sides;
  if (fill_nan_if_bad<T>(args, false)) return;
  __shared__ GradientWork work;
  if (threadIdx.x == 0) work = find_gradient_work(args, args.first_block + blockIdx.x, Tile::kTile, kHead, false);
  __syncthreads();
  if (work.valid == 0) return;
  const Tile tile(args, sides, dynamic_shared());
  __shared__ StreamedRange rows, part;
  const int64_t first_key = first_key_of(args, work);
  if (threadIdx.x == 0) {
    const int64_t there = keys_from(args, work);
    rows = streamed_rows(args, work, first_key, first_key + (there < Tile::kTile ? there : Tile::kTile) - 1);
    part = streamed_part(args, work, rows, Tile::kTile);
  }
  sides.set_keys(args, work, first_key);
  __syncthreads();
  tile.load(sides.keys, tile.own);
  typename Tile::Gradient of_k = {}, of_v = {};
  for (int64_t from = part.first; from < part.end; from += Tile::kTile) {
    __syncthreads();
    sides.set_streamed_rows(args, work, rows, from);
    tile.step(first_key_of(args, work), of_k, of_v);
  }
  if (args.of_prefix != 0 && args.parts > 1) {
    tile.store(of_k, 1.0f, [&](int at) { return key_part<float>(args, work, false, at); });
    tile.store(of_v, 1.0f, [&](int at) { return key_part<float>(args, work, true, at); });
    return;
  }
  tile.store(of_k, static_cast<float>(args.scale),
             [&](int at) { return key_gradient<T>(args, work, args.grad_k, args.grad_prefix_k, at); });
  tile.store(of_v, 1.0f, [&](int at) { return key_gradient<T>(args, work, args.grad_v, args.grad_prefix_v, at); });
}

}  // namespace rlk::cuda_kernels
