// The platform of AMD's compilers, hipcc and hipRTC: waves of 64 threads on gfx8 and gfx9, of 32 on later devices.
#pragma once

#if !defined(__HIPCC_RTC__)
#include <hip/hip_runtime.h>
#endif

#include "platform_plain.cuh"

namespace rlk::simt {

// The compiler's own number where it gives one. The host's half of a compilation has no device, and any will do.
#if defined(__AMDGCN_WAVEFRONT_SIZE__)
constexpr int kWave = __AMDGCN_WAVEFRONT_SIZE__;
#elif defined(__AMDGCN_WAVEFRONT_SIZE)
constexpr int kWave = __AMDGCN_WAVEFRONT_SIZE;
#elif defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
constexpr int kWave = 32;
#else
constexpr int kWave = 64;
#endif

template <class T>
__device__ __forceinline__ T wave_xor(T value, int lanes) {
  return __shfl_xor(value, lanes, kWave);
}
template <class T>
__device__ __forceinline__ T wave_read(T value, int lane) {
  return __shfl(value, lane, kWave);
}
__device__ __forceinline__ uint64_t wave_ballot(bool flag) {
  return __ballot(flag ? 1 : 0);
}
// Lanes run together; what one wrote to shared memory must be there before another one reads it.
__device__ __forceinline__ void wave_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __attribute__((aligned(128))) unsigned char memory[];
  return memory;
}

}  // namespace rlk::simt
