// The platform of NVIDIA's compiler: what simt.cuh asks of one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#define RLK_SIMT_KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define RLK_SIMT_ARGUMENT(Args) const __grid_constant__ Args
#define RLK_SIMT_APART __device__ __noinline__

namespace rlk::simt {

using bf16 = __nv_bfloat16;
using f16 = __half;
constexpr int kWave = 32;

template <class T>
__device__ __forceinline__ T wave_xor(T value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}

template <class T>
__device__ __forceinline__ T wave_read(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

__device__ __forceinline__ void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ uint64_t wave_ballot(bool flag) {
  return __ballot_sync(0xffffffffu, flag);
}

__device__ __forceinline__ void wave_sync() {
  __syncwarp();
}

__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char memory[];
  return memory;
}

__device__ __forceinline__ double inverse_root(double x) {
  return ::rsqrt(x);
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint4 opaque(uint4 v) {
  asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
  return v;
}
__device__ __forceinline__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
__device__ __forceinline__ uint4 load_stream(const void* address) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_stream(void* address, uint4 v) {
  __stcs(static_cast<uint4*>(address), v);
}

__device__ __forceinline__ uint32_t funnel_shift(uint32_t low, uint32_t high, unsigned bits) {
  return __funnelshift_r(low, high, bits);
}

__device__ __forceinline__ uint32_t narrow_pair(float a, float b, bf16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t narrow_pair(float a, float b, f16) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t max_pair(uint32_t a, uint32_t b, bf16) {
  const __nv_bfloat162 m =
      __hmax2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&m);
}
__device__ __forceinline__ uint32_t max_pair(uint32_t a, uint32_t b, f16) {
  const __half2 m = __hmax2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&m);
}

}  // namespace rlk::simt
