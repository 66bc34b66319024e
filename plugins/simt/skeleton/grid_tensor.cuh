// Reading numbers of a tensor whose dtype is known at run time: bits first, several at a time, so that all loads are on
// their way before the first is waited for; then numbers.
#pragma once

#include "../element.cuh"
#include "grid_tensor.h"

namespace rlk::simt {

template <int bytes>
struct GridBits {
  using type = uint32_t;
};
template <>
struct GridBits<8> {
  using type = uint64_t;
};
// The number of these bits; 16 of them are bf16 or f16.
template <class A, class Bits>
__device__ __forceinline__ A grid_widen(Bits bits, int32_t dtype) {
  if constexpr (sizeof(Bits) == 8) {
    A out;
    __builtin_memcpy(&out, &bits, sizeof(out));
    return out;
  } else {
    const auto low = static_cast<uint16_t>(bits);
    if (dtype == kMapF16) {
      f16 half;
      __builtin_memcpy(&half, &low, sizeof(half));
      return widen(half);
    }
    return __int_as_float(static_cast<int>(dtype == kMapBf16 ? bits << 16 : bits));
  }
}

template <class A>
__device__ __forceinline__ A grid_number(const GridTensor& tensor, int64_t at, int32_t dtype) {
  if constexpr (sizeof(A) == 8) {
    return static_cast<const double*>(tensor.data)[at];
  } else {
    return grid_widen<A>(dtype == kMapF32 ? static_cast<const uint32_t*>(tensor.data)[at]
                                          : uint32_t{static_cast<const uint16_t*>(tensor.data)[at]},
                         dtype);
  }
}

// Bits at `at`, at + step, ..., of which the first `count` are there, if the tensor is; 0 for the others.
template <class Bits, int kCount>
__device__ __forceinline__ void grid_bits(const GridTensor& tensor, int32_t dtype, int64_t at, int64_t step,
                                          int64_t count, Bits (&out)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) out[i] = 0;
  if (tensor.data == nullptr) return;
  const auto read = [&](const auto* data) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) out[i] = data[at + i * step];
    }
  };
  if constexpr (sizeof(Bits) == 8) {
    read(static_cast<const uint64_t*>(tensor.data));
  } else if constexpr (sizeof(Bits) == 1) {
    read(static_cast<const uint8_t*>(tensor.data));
  } else if (dtype == kMapF32) {
    read(static_cast<const uint32_t*>(tensor.data));
  } else {
    read(static_cast<const uint16_t*>(tensor.data));
  }
}

// Any number of them, one by one.
__device__ __forceinline__ double grid_read(const GridTensor& tensor, int64_t at) {
  return tensor.dtype == kMapF64 ? grid_number<double>(tensor, at, kMapF64)
                                 : static_cast<double>(grid_number<float>(tensor, at, tensor.dtype));
}
__device__ __forceinline__ void grid_put(const GridTensor& tensor, int64_t at, double value) {
  if (tensor.dtype == kMapF32) {
    static_cast<float*>(tensor.data)[at] = Narrow<float>::of(value);
  } else if (tensor.dtype == kMapF64) {
    static_cast<double*>(tensor.data)[at] = value;
  } else if (tensor.dtype == kMapBf16) {
    static_cast<bf16*>(tensor.data)[at] = Narrow<bf16>::of(value);
  } else {
    static_cast<f16*>(tensor.data)[at] = Narrow<f16>::of(value);
  }
}

}  // namespace rlk::simt
