// The platform of MetaX's compilers: waves of 64 threads whose masks have 64 bits. No such compiler and no header of it
// is public: the lanes' functions are from memory and from call sites in others' kernels, and never compiled.
#pragma once

#include "platform_plain.cuh"

namespace rlk::simt {

constexpr int kWave = 64;
constexpr uint64_t kAllLanes = ~uint64_t{0};

template <class T>
__device__ __forceinline__ T wave_xor(T value, int lanes) {
  return __shfl_xor_sync(kAllLanes, value, lanes);
}
template <class T>
__device__ __forceinline__ T wave_read(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
__device__ __forceinline__ uint64_t wave_ballot(bool flag) {
  return __ballot_sync(kAllLanes, flag ? 1 : 0);
}
__device__ __forceinline__ void wave_sync() {
  __syncwarp(kAllLanes);
}
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __attribute__((aligned(128))) unsigned char memory[];
  return memory;
}

}  // namespace rlk::simt
