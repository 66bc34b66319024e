// Lanes of a wave as bits, lane 0's the lowest: as many as the wave has.
#pragma once

#include "../simt.cuh"

namespace rlk::simt {

template <int lanes>
struct LaneBitsOf {
  using type = uint32_t;
};
template <>
struct LaneBitsOf<64> {
  using type = uint64_t;
};
using LaneBits = LaneBitsOf<kWave>::type;

__device__ __forceinline__ LaneBits lanes_where(bool flag) {
  return static_cast<LaneBits>(wave_ballot(flag));
}
__device__ __forceinline__ int count_lanes(uint32_t lanes) {
#if defined(__CUDA_ARCH__)
  return __popc(lanes);
#else
  return __builtin_popcount(lanes);
#endif
}
__device__ __forceinline__ int count_lanes(uint64_t lanes) {
#if defined(__CUDA_ARCH__)
  return __popcll(lanes);
#else
  return __builtin_popcountll(lanes);
#endif
}

// The lowest of some.
__device__ __forceinline__ int lowest_of(LaneBits lanes) {
  return count_lanes((lanes & (~lanes + 1)) - 1);
}

}  // namespace rlk::simt
