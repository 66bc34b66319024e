// attention over fixed shares of keys on tensor cores: a row's bits are its own query's and keys', whatever the call
// has beside it, in a step of decoding and in prefill.
//
// Few rows: a block has 16 rows and one share (attention_parts.h), each warp a quarter of it, 16 keys at a time; the
// merge adds shares one by one. Many rows: a warp has 16 rows of its own and meets all their keys, 64 at a time, and
// adds the same numbers in the same order (fixed_shares.cuh): weights by 16 keys, quarters to shares, shares to rows.
#pragma once

#include "attention_parts_mma.cuh"

namespace rlk::cuda_kernels {

template <class T>
struct FixedShares : SampleParts<T> {
  static constexpr bool kFixed = true;
  template <class S, bool kOptions, bool kOwn>
  using Loader = TileLoader<S, T, kOptions, kOwn, S::kKeys / S::kWarps>;
  using SampleParts<T>::args;
  using SampleParts<T>::batch;
  using SampleParts<T>::sample;
  using SampleParts<T>::kv_head;
  using SampleParts<T>::split;
  using SampleParts<T>::count;
  int64_t own_first = 0;  // of this warp's keys; they end at `count`

  __device__ __forceinline__ FixedShares(const AttentionPartsArgs& given, int64_t item, int block_rows)
      : FixedShares(given, block_rows, cuda::fixed_share_at(item, given.splits, tiles_of(given, block_rows))) {}

  // The warp's keys of those that rows of this block see. All warps take as many steps.
  template <class S>
  __device__ __forceinline__ void take_share(const KeyRange& seen, int64_t& /*first_tile*/, int64_t& tiles) {
    constexpr int64_t kStep = S::kKeys / S::kWarps;
    static_assert(S::kWarps == 4 && kStep == 16, "a warp has a quarter of a share and meets 16 keys at a time");
    const int64_t begin = cuda::fixed_share_begin(split), quarter = cuda::fixed_quarter(split);
    const int64_t low = seen.first / kStep * kStep, high = seen.last + 1;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    tiles = 0;
#pragma unroll
    for (int w = 0; w < S::kWarps; ++w) {
      const int64_t from = max(begin + w * quarter, low), to = min(begin + (w + 1) * quarter, high);
      tiles = max(tiles, (to - from + kStep - 1) / kStep);
      if (w != warp) continue;
      own_first = from;
      count = to;
    }
  }
  __device__ __forceinline__ bool leaves_empty() const {
    return true;
  }
  template <class S, bool kOptions, bool kOwn>
  __device__ __forceinline__ Loader<S, kOptions, kOwn> keys(int64_t first_key, uint32_t tile,
                                                            const KeyMask& mask) const {
    return load<S, kOptions, kOwn>(args.k, first_key, tile, mask);
  }
  template <class S, bool kOptions, bool kOwn>
  __device__ __forceinline__ Loader<S, kOptions, kOwn> values(int64_t first_key, uint32_t tile,
                                                              const KeyMask& mask) const {
    return load<S, kOptions, kOwn>(args.v, first_key, tile, mask);
  }

private:
  __device__ __forceinline__ FixedShares(const AttentionPartsArgs& given, int block_rows,
                                         const cuda::FixedShareOfTile& at)
      : SampleParts<T>(given, at.tile, at.share, block_rows) {}
  static __device__ __forceinline__ int64_t tiles_of(const AttentionPartsArgs& args, int block_rows) {
    return args.batches * args.kv_heads * ((args.queries * args.group + block_rows - 1) / block_rows);
  }
  // A loader's warp begins as many keys on as its rows of a tile do.
  template <class S, bool kOptions, bool kOwn>
  __device__ __forceinline__ Loader<S, kOptions, kOwn> load(const SampleTensor& from, int64_t first_key, uint32_t tile,
                                                            const KeyMask& mask) const {
    const int64_t before = static_cast<int64_t>(threadIdx.x) / 32 * (S::kKeys / S::kWarps);
    return {sample_row<const T>(from, batch, sample, 0, kv_head),
            from.token_stride,
            first_key - before,
            count,
            args.head_size,
            tile,
            mask};
  }
};

// Rows that meet all their keys in one block, which stores their results.
template <class T>
struct FixedRows : SampleParts<T> {
  static constexpr bool kFixed = true;
  using SampleParts<T>::args;
  using SampleParts<T>::batch;

  __device__ __forceinline__ FixedRows(const AttentionPartsArgs& given, int64_t item, int block_rows)
      : SampleParts<T>(given, item, 0, block_rows) {}

  struct Place {
    T* out;
    float* lse;  // nullptr: not wanted
    float inverse;
  };
  template <class S>
  __device__ __forceinline__ void take_share(const KeyRange&, int64_t&, int64_t&) const {}
  __device__ __forceinline__ Place place(int64_t number, float total) const {
    const auto at = this->row(number);
    return {sample_row<T>(args.out, batch, at.sample, at.query, at.head),
            args.lse.data == nullptr ? nullptr : sample_row<float>(args.lse, batch, at.sample, at.query, at.head),
            total == 0.0f ? 0.0f : 1.0f / total};
  }
  __device__ __forceinline__ void put(const Place& to, int d, float2 value) const {
    *reinterpret_cast<uint32_t*>(to.out + d) = pack_pair<T>(value.x * to.inverse, value.y * to.inverse);
  }
  __device__ __forceinline__ void put_sums(const Place& to, float top, float total) const {
    if (to.lse == nullptr) return;
    *to.lse =
        total == 0.0f ? -INFINITY : static_cast<float>((double(top) + log2(double(total))) * 0.69314718055994530942);
  }
};

}  // namespace rlk::cuda_kernels
