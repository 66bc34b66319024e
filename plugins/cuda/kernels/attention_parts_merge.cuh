// The parts of each row of attention in parts (attention_parts_mma.cuh) as one, in their order, and with them the few
// keys of its own that a sample may have beside its prefix: a kernel for these alone took longer than the merge. A warp
// has a row, a lane four elements of its head.
#pragma once

#include "../../simt/attention_samples.cuh"
#include "attention_parts.h"
#include "mma.cuh"

namespace rlk::cuda_kernels {

using cuda::AttentionPartsArgs;
using namespace simt;

// Four elements of a head.
template <class T>
__device__ __forceinline__ float4 widen_four(uint64_t bits) {
  const float2 low = unpack_pair<T>(static_cast<uint32_t>(bits)),
               high = unpack_pair<T>(static_cast<uint32_t>(bits >> 32));
  return make_float4(low.x, low.y, high.x, high.y);
}
__device__ __forceinline__ void add_scaled(float4& to, const float4& value, float factor) {
  to.x = fmaf(value.x, factor, to.x);
  to.y = fmaf(value.y, factor, to.y);
  to.z = fmaf(value.z, factor, to.z);
  to.w = fmaf(value.w, factor, to.w);
}

template <class T>
struct MergedRow {
  const AttentionPartsArgs& args;
  int64_t batch, sample, query, head;
  float top = -INFINITY, total = 0.0f;  // in powers of 2; of the weights so far
  float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

  __device__ __forceinline__ MergedRow(const AttentionPartsArgs& given, int64_t row) : args(given) {
    const int64_t token = row / args.q_heads, sequence = token / args.queries;
    head = row - token * args.q_heads;
    query = token - sequence * args.queries;
    batch = sequence / args.samples;
    sample = sequence - batch * args.samples;
  }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ bool in_head() const { return 4 * lane() < args.head_size; }

  // A part's numbers join those so far.
  __device__ __forceinline__ void rise_to(float other) {
    const float highest = fmaxf(top, other), base = highest == -INFINITY ? 0.0f : highest;
    const float factor = exp2_fast(top - base);
    total *= factor;
    value.x *= factor;
    value.y *= factor;
    value.z *= factor;
    value.w *= factor;
    top = highest;
  }

  __device__ __forceinline__ void take_own_keys() {
    constexpr int kAtOnce = 8;
    const int64_t all = args.prefix_keys + args.keys, diagonal = args.top_left != 0 ? 0 : all - args.queries;
    const KeyRange range = span_of(keys_in_window(args.window_left, args.window_right, all, query + diagonal),
                                   args.prefix_keys, args.keys);
    const int64_t kv_head = head / args.group;
    const int column = in_head() ? 4 * lane() : 0;
    const auto row_of = [&](const SampleTensor& tensor, int64_t token, int64_t of_head) {
      return sample_row<const T>(tensor, batch, sample, token, of_head) + column;
    };
    const T *keys = row_of(args.k, range.first, kv_head), *values = row_of(args.v, range.first, kv_head);
    const auto load = [&](const T* from, bool is_seen) -> uint64_t {
      return is_seen && in_head() ? *reinterpret_cast<const uint64_t*>(from) : 0;
    };
    const float4 q = widen_four<T>(load(row_of(args.q, query, head), true));
    const KeyMask mask = key_mask_of(args.key_mask, batch, sample);
    const float scale = args.softcap > 0 ? 1.0f : static_cast<float>(args.scale * 1.4426950408889634074);
#pragma unroll 1
    for (int64_t first = range.first; first <= range.last; first += kAtOnce) {
      uint64_t k[kAtOnce], v[kAtOnce];
      float score[kAtOnce];
      bool is_seen[kAtOnce];
      float highest = -INFINITY;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        is_seen[j] = first + j <= range.last && keeps_key(mask, first + j);
        k[j] = load(keys, is_seen[j]);
        v[j] = load(values, is_seen[j]);
        keys += args.k.token_stride;
        values += args.v.token_stride;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const float4 key = widen_four<T>(k[j]);
        score[j] = fmaf(q.x, key.x, fmaf(q.y, key.y, fmaf(q.z, key.z, q.w * key.w)));
      }
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) score[j] += wave_xor(score[j], lanes);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (args.softcap > 0) score[j] = Softcap<float>(args)(score[j]);
        score[j] = is_seen[j] ? score[j] * scale : -INFINITY;
        highest = fmaxf(highest, score[j]);
      }
      rise_to(highest);
      const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const float weight = exp2_fast(score[j] - base);
        total += weight;
        if (score[j] != -INFINITY) add_scaled(value, widen_four<T>(v[j]), weight);
      }
    }
  }

  // Part by part, as blocks of many rows add their shares (attention_fixed_mma.cuh). A part that saw no key has no
  // values.
  __device__ __forceinline__ void take_parts_in_order(int64_t row, int64_t rows) {
    constexpr int kAtOnce = 8;
    const float2* const sums = reinterpret_cast<const float2*>(args.sums);
#pragma unroll 1
    for (int first = 0; first < args.slots; first += kAtOnce) {
      float2 of_part[kAtOnce];
      float4 numbers[kAtOnce];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        of_part[s] = first + s < args.slots ? sums[(first + s) * rows + row] : make_float2(-INFINITY, 0.0f);
      }
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        numbers[s] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (of_part[s].x == -INFINITY || !in_head()) continue;
        const int64_t part = (first + s) * rows + row;
        numbers[s] = *reinterpret_cast<const float4*>(args.parts + part * args.head_size + 4 * lane());
      }
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        rise_to(of_part[s].x);
        const float factor = exp2_fast(of_part[s].x - (top == -INFINITY ? 0.0f : top));
        total = fmaf(of_part[s].y, factor, total);
        add_scaled(value, numbers[s], factor);
      }
    }
  }
  __device__ __forceinline__ void take_parts(int64_t row, int64_t rows) {
    constexpr int kAtOnce = 8;
    const float2* const sums = reinterpret_cast<const float2*>(args.sums);
#pragma unroll 1
    for (int first = 0; first < args.slots; first += kAtOnce) {
      float2 of_part[kAtOnce];
      float4 numbers[kAtOnce];
      float highest = -INFINITY;
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        of_part[s] = make_float2(-INFINITY, 0.0f);
        numbers[s] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + s >= args.slots) continue;
        const int64_t part = (first + s) * rows + row;
        of_part[s] = sums[part];
        if (in_head()) numbers[s] = *reinterpret_cast<const float4*>(args.parts + part * args.head_size + 4 * lane());
      }
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) highest = fmaxf(highest, of_part[s].x);
      rise_to(highest);
      const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        const float factor = exp2_fast(of_part[s].x - base);
        total = fmaf(of_part[s].y, factor, total);
        add_scaled(value, numbers[s], factor);
      }
    }
  }

  __device__ __forceinline__ void store() const {
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    if (in_head()) {
      const uint64_t low = pack_pair<T>(value.x * inverse, value.y * inverse);
      const uint64_t high = pack_pair<T>(value.z * inverse, value.w * inverse);
      *reinterpret_cast<uint64_t*>(sample_row<T>(args.out, batch, sample, query, head) + 4 * lane()) = low | high << 32;
    }
    if (args.lse.data != nullptr && lane() == 0) {
      *sample_row<float>(args.lse, batch, sample, query, head) =
          total == 0.0f ? -INFINITY : static_cast<float>((double(top) + log2(double(total))) * 0.69314718055994530942);
    }
  }
};

template <class T, bool kInOrder = false>
__device__ __forceinline__ void attention_parts_merge(const AttentionPartsArgs& args) {
  const int64_t rows = args.batches * args.samples * args.queries * args.q_heads;
  const int64_t step = static_cast<int64_t>(gridDim.x) * cuda::kPartsMergeWarps;
#pragma unroll 1
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * cuda::kPartsMergeWarps + threadIdx.x / 32; row < rows;
       row += step) {
    MergedRow<T> merged(args, row);
    if constexpr (kInOrder) {
      merged.take_parts_in_order(row, rows);
    } else {
      merged.take_parts(row, rows);
    }
    if (args.merges_own != 0) merged.take_own_keys();
    merged.store();
  }
}

}  // namespace rlk::cuda_kernels
