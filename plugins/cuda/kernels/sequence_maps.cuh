// Tensor maps of packed sequences, made on the device: copies of the whole tensor's map that begin and end with a
// sequence. Copies in find zeros behind its end, and copies out write nothing there.
#pragma once

#include "../../simt/attention.cuh"
#include "wgmma.cuh"

namespace rlk::cuda_kernels {

using cuda::SequenceMap;

// By one thread: tokens first .. first + count of a tensor of 16-bit elements. No map has no tokens, and nothing is
// copied of an empty sequence.
__device__ __forceinline__ void make_sequence_map(SequenceMap* to, const cuda::TensorMap& all, const void* data,
                                                  int64_t token_stride, int64_t first, int64_t count) {
  if (count <= 0) return;
#pragma unroll
  for (int i = 0; i < 16; ++i) to->map.words[i] = all.words[i];
  const uint64_t start = reinterpret_cast<uint64_t>(data) + 2 * static_cast<uint64_t>(first * token_stride);
  asm volatile(
      "tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;\n"
      "tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 2, %2;\n"
      "fence.proxy.tensormap::generic.release.gpu;" ::"l"(to),
      "l"(start), "r"(static_cast<uint32_t>(count))
      : "memory");
}
// By the thread that copies, before it copies through a map that another kernel has made.
__device__ __forceinline__ void read_sequence_map(const SequenceMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// The tokens of a packed sequence.
struct PackedSpan {
  int64_t first, count;
};
__device__ __forceinline__ PackedSpan packed_span(const void* cu, int64_t sequence, bool is_i64) {
  const int64_t first = simt::read_index(cu, sequence, is_i64);
  return {first, simt::read_index(cu, sequence + 1, is_i64) - first};
}

// The sequence that has tile `tile` of all, counted by plan; `from` or a later one.
__device__ __forceinline__ int sequence_of(const int64_t* plan, int64_t tile, int from) {
  while (plan[from + 1] <= tile) ++from;
  return from;
}

}  // namespace rlk::cuda_kernels
