// What simt.cuh asks of a platform and plain C++ can say: the platforms of HIP and MACA add their lanes. No vendor's
// header is needed, so the same text serves a compiler at build time and one at run time. Names are rlk::simt's own and
// hide a vendor's of the same name. Arithmetic counts on -ffp-contract=off, memory on -fno-strict-aliasing.
#pragma once

#define RLK_SIMT_FIRST(first, ...) first
#define RLK_SIMT_KERNEL(...) extern "C" __global__ void __launch_bounds__(RLK_SIMT_FIRST(__VA_ARGS__, 0))
#define RLK_SIMT_ARGUMENT(Args) const Args
#define RLK_SIMT_APART __device__ __forceinline__

namespace rlk::simt {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  _Float16 value;
};

template <class To, class From>
__device__ __forceinline__ To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits as another type");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
__device__ __forceinline__ float __int_as_float(int bits) {
  return bits_as<float>(bits);
}
__device__ __forceinline__ int __float_as_int(float x) {
  return bits_as<int>(x);
}

__device__ __forceinline__ void wait_for_earlier() {}

__device__ __forceinline__ float __bfloat162float(bf16 x) {
  return bits_as<float>(static_cast<uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ bf16 __float2bfloat16(float x) {
  const uint32_t bits = bits_as<uint32_t>(x);
  if (x != x) return {0x7fff};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
__device__ __forceinline__ float __half2float(f16 x) {
  return static_cast<float>(x.value);
}
__device__ __forceinline__ f16 __float2half_rn(float x) {
  return {static_cast<_Float16>(x)};
}
// Toward zero: what rounding to nearest took too far comes back by one unit. The largest number stays finite.
__device__ __forceinline__ float __double2float_rz(double x) {
  const float near = static_cast<float>(x);
  const double away = near < 0 ? -static_cast<double>(near) : static_cast<double>(near);
  return away > (x < 0 ? -x : x) ? bits_as<float>(bits_as<uint32_t>(near) - 1) : near;
}

__device__ __forceinline__ float __fadd_rn(float a, float b) {
  return a + b;
}
__device__ __forceinline__ float __fmul_rn(float a, float b) {
  return a * b;
}
__device__ __forceinline__ double __dadd_rn(double a, double b) {
  return a + b;
}
__device__ __forceinline__ double __dmul_rn(double a, double b) {
  return a * b;
}

__device__ __forceinline__ double inverse_root(double x) {
  return 1 / ::sqrt(x);
}

__device__ __forceinline__ float exp2_fast(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}

__device__ __forceinline__ void prefetch(const void*) {}
__device__ __forceinline__ uint4 opaque(uint4 v) {
  return v;
}

// Without a way to pass a cache by.
__device__ __forceinline__ uint4 load_stream(const void* address) {
  return *static_cast<const uint4*>(address);
}
__device__ __forceinline__ void store_stream(void* address, uint4 v) {
  *static_cast<uint4*>(address) = v;
}

__device__ __forceinline__ uint32_t funnel_shift(uint32_t low, uint32_t high, unsigned bits) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> bits);
}

__device__ __forceinline__ uint32_t narrow_pair(float a, float b, bf16) {
  return bits_as<uint16_t>(__float2bfloat16(a)) | static_cast<uint32_t>(bits_as<uint16_t>(__float2bfloat16(b))) << 16;
}
__device__ __forceinline__ uint32_t narrow_pair(float a, float b, f16) {
  return bits_as<uint16_t>(__float2half_rn(a)) | static_cast<uint32_t>(bits_as<uint16_t>(__float2half_rn(b))) << 16;
}

template <int bytes>
struct WordOf {
  using type = unsigned;
};
template <>
struct WordOf<8> {
  using type = unsigned long long;
};
// Older runtimes have none for signed 64-bit numbers.
template <class T>
__device__ __forceinline__ T atomicMax(T* at, T value) {
  using Word = typename WordOf<sizeof(T)>::type;
  Word* const word = reinterpret_cast<Word*>(at);
  Word seen = *reinterpret_cast<volatile Word*>(at);
  while (bits_as<T>(seen) < value) {
    const Word found = atomicCAS(word, seen, bits_as<Word>(value));
    if (found == seen) break;
    seen = found;
  }
  return bits_as<T>(seen);
}

__device__ __forceinline__ float wide(bf16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float wide(f16 x) {
  return __half2float(x);
}
template <class T>
__device__ __forceinline__ uint32_t max_pair(uint32_t a, uint32_t b, T) {
  T x[2], y[2];
  __builtin_memcpy(x, &a, 4);
  __builtin_memcpy(y, &b, 4);
  for (int i = 0; i < 2; ++i) {
    if (!(wide(x[i]) >= wide(y[i]))) x[i] = y[i];
  }
  __builtin_memcpy(&a, x, 4);
  return a;
}

}  // namespace rlk::simt
