// Whether cu_seqlens cut the tokens into sequences that follow each other.
#pragma once

#include "../tokens.cuh"

namespace rlk::simt {

struct Seqlens {
  const void* cu_seqlens;
  int64_t stride;
  int64_t sequences;
  int64_t tokens;
  int32_t are_i64;
  int32_t reserved;
  DataErrorSink errors;
};

// The smallest of all threads' numbers, in each of them.
template <int kThreads>
__device__ __forceinline__ int64_t block_smallest(int64_t mine) {
  __shared__ int64_t part[kThreads / kWave];
#pragma unroll
  for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
    const int64_t other = wave_xor(mine, lanes);
    mine = other < mine ? other : mine;
  }
  __syncthreads();  // of another call's before
  if (threadIdx.x % kWave == 0) part[threadIdx.x / kWave] = mine;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / kWave; ++w) mine = part[w] < mine ? part[w] : mine;
  return mine;
}

// The first bad position, -1 without one, found by all threads of a block of kThreads; told to the stream's record if
// this block is the one that `reports`.
template <int kThreads>
__device__ __forceinline__ int64_t check_seqlens(const Seqlens& of, bool reports) {
  int64_t bad = INT64_MAX;
  for (int64_t position = threadIdx.x; position <= of.sequences && bad == INT64_MAX; position += kThreads) {
    const int64_t content = read_index(of.cu_seqlens, position * of.stride, of.are_i64 != 0);
    const int64_t previous = position > 0 ? read_index(of.cu_seqlens, (position - 1) * of.stride, of.are_i64 != 0) : 0;
    const bool starts_wrong = position == 0 && content != 0;
    if (starts_wrong || content < previous || (position == of.sequences && content != of.tokens)) bad = position;
  }
  bad = block_smallest<kThreads>(bad);
  if (bad == INT64_MAX) return -1;
  if (reports && threadIdx.x == 0) {
    report_data_error(of.errors, kDataBadSeqlens, bad, read_index(of.cu_seqlens, bad * of.stride, of.are_i64 != 0));
  }
  return bad;
}

}  // namespace rlk::simt
