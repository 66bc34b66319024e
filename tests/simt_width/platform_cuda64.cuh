// NVIDIA's compiler with waves of 64 lanes: two warps that exchange values through shared memory, behind a named
// barrier of their own. Slow; for running the kernels as a device of that width does, on a device that is at hand.
#pragma once

// All but the lanes is the platform's of that compiler, whose waves are the warps here.
#define kWave kWarp
#define wave_xor warp_xor
#define wave_read warp_read
#define wave_ballot warp_ballot
#define wave_sync warp_sync
#include "plugins/simt/platform_cuda.cuh"
#undef kWave
#undef wave_xor
#undef wave_read
#undef wave_ballot
#undef wave_sync

// A block is of whole waves. There are 16 named barriers, and __syncthreads() is the first.
#undef RLK_SIMT_KERNEL
#define RLK_SIMT_FIRST(first, ...) first
#define RLK_SIMT_KERNEL(...)                                                             \
  static_assert(RLK_SIMT_FIRST(__VA_ARGS__, 0) % rlk::simt::kWave == 0 &&                \
                    RLK_SIMT_FIRST(__VA_ARGS__, 0) <= rlk::simt::kMostThreads,           \
                "a block of whole waves, each with a barrier and a slot for each lane"); \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__)

namespace rlk::simt {

constexpr int kWave = 64;
constexpr int kMostThreads = 256;
static_assert(kMostThreads / kWave < 16, "a named barrier for each wave");

// Not the aligned form: the threads of a warp may come one after the other.
__device__ __forceinline__ void wave_sync() {
  asm volatile("barrier.sync %0, %1;" : : "r"(1 + threadIdx.x / kWave), "n"(kWave) : "memory");
}

// Of the calling thread's wave.
__device__ __forceinline__ uint64_t* wave_slots() {
  __shared__ uint64_t slots[kMostThreads];
  return slots + threadIdx.x / kWave * kWave;
}

template <class T>
__device__ __forceinline__ T wave_read(T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "fits a slot");
  uint64_t* const slots = wave_slots();
  __builtin_memcpy(slots + threadIdx.x % kWave, &value, sizeof(T));
  wave_sync();
  __builtin_memcpy(&value, slots + lane, sizeof(T));
  wave_sync();  // before another lane writes again
  return value;
}

template <class T>
__device__ __forceinline__ T wave_xor(T value, int lanes) {
  return wave_read(value, static_cast<int>(threadIdx.x % kWave) ^ lanes);
}

__device__ __forceinline__ uint64_t wave_ballot(bool flag) {
  const uint64_t half = warp_ballot(flag);
  return wave_read(half, 0) | wave_read(half, kWarp) << kWarp;
}

}  // namespace rlk::simt
