// Elements of the four dtypes: the accumulator of each, conversions, and 16-byte packs of them.
#pragma once

#include "simt.cuh"

namespace rlk::simt {

template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

template <class T>
constexpr bool kIsBf16 = false;
template <>
inline constexpr bool kIsBf16<bf16> = true;

__device__ __forceinline__ float widen(float x) {
  return x;
}
__device__ __forceinline__ double widen(double x) {
  return x;
}
__device__ __forceinline__ float widen(bf16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float widen(f16 x) {
  return __half2float(x);
}

// Round to nearest even. From double straight to 16 bits would round twice: first to odd in float, then to nearest.
__device__ __forceinline__ float round_to_odd(double x) {
  const float down = __double2float_rz(x);
  if (static_cast<double>(down) == x || isinf(down) || isnan(x)) return static_cast<float>(x);
  return __int_as_float(__float_as_int(down) | 1);
}

template <class T>
struct Narrow;
template <>
struct Narrow<float> {
  static __device__ __forceinline__ float of(float x) { return x; }
  static __device__ __forceinline__ float of(double x) { return static_cast<float>(x); }
};
template <>
struct Narrow<double> {
  static __device__ __forceinline__ double of(double x) { return x; }
};
template <>
struct Narrow<bf16> {
  static __device__ __forceinline__ bf16 of(float x) { return __float2bfloat16(x); }
  static __device__ __forceinline__ bf16 of(double x) { return __float2bfloat16(round_to_odd(x)); }
};
template <>
struct Narrow<f16> {
  static __device__ __forceinline__ f16 of(float x) { return __float2half_rn(x); }
  static __device__ __forceinline__ f16 of(double x) { return __float2half_rn(round_to_odd(x)); }
};

// Of two fp32 numbers 16 bits each take one instruction.
template <class V, class T, int count>
__device__ __forceinline__ void narrow(const V (&in)[count], T (&out)[count]) {
  if constexpr (sizeof(V) == 4 && sizeof(T) == 2 && count % 2 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      const uint32_t pair = narrow_pair(in[i], in[i + 1], T());
      __builtin_memcpy(out + i, &pair, sizeof(pair));
    }
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) out[i] = Narrow<T>::of(in[i]);
  }
}

// 16 bytes of T in registers.
template <class T>
struct Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  uint4 bits;

  __device__ __forceinline__ void unpack(Accumulator<T> (&out)[kSize]) const {
    const T* element = reinterpret_cast<const T*>(&bits);
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[i] = widen(element[i]);
  }
  __device__ __forceinline__ void pack(const Accumulator<T> (&in)[kSize]) {
    T* element = reinterpret_cast<T*>(&bits);
#pragma unroll
    for (int i = 0; i < kSize; ++i) element[i] = Narrow<T>::of(in[i]);
  }
};

// The 16 bytes at any address, from the two aligned accesses that hold them. Both hold at least one of the bytes.
__device__ __forceinline__ uint4 load_unaligned(const void* address) {
  const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(address) % 16);
  const uint4* from = reinterpret_cast<const uint4*>(reinterpret_cast<uintptr_t>(address) - shift);
  if (shift == 0) return load_stream(from);
  const uint4 low = from[0], high = from[1];
  uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; ++i) word[i] = (shift & 8) != 0 ? word[i + 2] : word[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) word[i] = (shift & 4) != 0 ? word[i + 1] : word[i];
  const unsigned bits = 8 * (shift & 3);
  return {funnel_shift(word[0], word[1], bits), funnel_shift(word[1], word[2], bits),
          funnel_shift(word[2], word[3], bits), funnel_shift(word[3], word[4], bits)};
}

// Elements [column, column + kSize) of a row of `columns`; what lies beyond the row reads as `fill`.
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* row, int64_t column, int64_t columns, T fill) {
  Pack<T> pack;
  if (column + Pack<T>::kSize <= columns) {
    pack.bits = load_unaligned(row + column);
    return pack;
  }
  T element[Pack<T>::kSize];
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) element[i] = column + i < columns ? row[column + i] : fill;
  __builtin_memcpy(&pack.bits, element, sizeof(pack.bits));
  return pack;
}

// The first `count` elements of the pack, one by one.
template <class T>
__device__ __forceinline__ void store_pack(T* to, int64_t count, const Pack<T>& pack) {
  T element[Pack<T>::kSize];
  __builtin_memcpy(element, &pack.bits, sizeof(pack.bits));
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) {
    if (i < count) to[i] = element[i];
  }
}

}  // namespace rlk::simt
