// Sums over the threads of a block that has a row of sample (sample_rows.cuh), and what they share.
#pragma once

#include "sample.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

// Tokens in the order of the filters are a score's order, inverted, over an id. A row keeps those up to `last` that
// weigh `least`; `sum` is their weight.
struct SampleCut {
  uint64_t last, least, sum;
};
constexpr uint64_t kSampleAll = ~uint64_t{0};
constexpr int kSampleDigits = 2048;

struct SampleShared {
  uint64_t of_wave[kPeakThreads / 32];
  uint64_t rest, number;
  long long found;
  SampleCut cut;
  int kept, is_settled;  // of the list; whether it answers
};
__device__ __forceinline__ SampleShared& sample_shared() {
  __shared__ SampleShared shared;
  return shared;
}

// The sum of what the threads before this one have, and of all.
__device__ inline uint64_t sum_before(uint64_t own, uint64_t& total) {
  SampleShared& shared = sample_shared();
  const int waves = static_cast<int>(blockDim.x) / kWave;
  const int me = static_cast<int>(threadIdx.x), lane = me % kWave;
  uint64_t sum = own;
#pragma unroll
  for (int lanes = 1; lanes < kWave; lanes *= 2) {
    const uint64_t before = wave_read(sum, lane >= lanes ? lane - lanes : lane);
    if (lane >= lanes) sum += before;
  }
  if (lane == kWave - 1) shared.of_wave[me / kWave] = sum;
  __syncthreads();
  uint64_t before = 0;
  total = 0;
  for (int w = 0; w < waves; ++w) {
    if (w == me / kWave) before = total;
    total += shared.of_wave[w];
  }
  __syncthreads();
  return before + sum - own;
}
__device__ __forceinline__ uint64_t sum_of_block(uint64_t own) {
  uint64_t total;
  sum_before(own, total);
  return total;
}

// The first i at which the sum of value(0) .. value(i) exceeds the target; *rest is what is left of the target before
// it. The count, where the sum of all does not.
template <class Value>
__device__ __forceinline__ int64_t first_beyond(int64_t count, uint64_t target, const Value& value, uint64_t* rest) {
  SampleShared& shared = sample_shared();
  const int64_t threads = blockDim.x, each = (count + threads - 1) / threads, begin = threadIdx.x * each;
  const int64_t end = begin + each < count ? begin + each : count;
  uint64_t own = 0, total;
  for (int64_t i = begin; i < end; ++i) own += value(i);
  if (threadIdx.x == 0) shared.found = count;
  uint64_t before = sum_before(own, total);
  if (before <= target && target - before < own) {
    int64_t i = begin;
    for (uint64_t next = value(i); next <= target - before; next = value(i)) {
      before += next;
      ++i;
    }
    shared.found = i;
    shared.rest = target - before;
  }
  __syncthreads();
  const int64_t found = shared.found;
  *rest = shared.rest;
  __syncthreads();
  return found;
}

}  // namespace rlk::simt

#endif
