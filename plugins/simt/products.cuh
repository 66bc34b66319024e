// What stands around the products of a vendor's library: elements that are converted, scaled or filled, the power of
// two that scales them, and sums of columns in a fixed order.
#pragma once

#include "element.cuh"
#include "products.h"
#include "tokens.cuh"

namespace rlk::simt {

template <class From, class To>
__device__ __forceinline__ void products_map(const ProductsMapArgs& args) {
  using A = Accumulator<To>;
  const From* x = static_cast<const From*>(args.x);
  To* y = static_cast<To*>(args.y);
  const To* bias = static_cast<const To*>(args.bias);
  A factor = A(args.factor);
  if (args.scale != nullptr) factor *= A(*args.scale);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (args.dense > 0) {
    const int64_t packs = (args.dense + kProductsPack - 1) / kProductsPack;
    for (int64_t p = first; p < packs; p += step) {
      const int64_t at = p * kProductsPack;
      constexpr int kFrom = Pack<From>::kSize, kTo = Pack<To>::kSize;
      A value[kProductsPack];
#pragma unroll
      for (int i = 0; i < kProductsPack; i += kFrom) {
        Accumulator<From> part[kFrom];
        load_pack(x, at + i, args.dense, From()).unpack(part);
#pragma unroll
        for (int j = 0; j < kFrom; ++j) value[i + j] = factor * A(part[j]);
      }
#pragma unroll
      for (int i = 0; i < kProductsPack; i += kTo) {
        A part[kTo];
#pragma unroll
        for (int j = 0; j < kTo; ++j) part[j] = value[i + j];
        Pack<To> pack;
        pack.pack(part);
        if (at + i + kTo <= args.dense) {
          *reinterpret_cast<uint4*>(y + at + i) = pack.bits;
        } else if (at + i < args.dense) {
          store_pack(y + at + i, args.dense - at - i, pack);
        }
      }
    }
    return;
  }
  const int64_t count = args.size[0] * args.size[1] * args.size[2] * args.size[3];
  for (int64_t i = first; i < count; i += step) {
    int64_t rest = i, x_at = 0, y_at = 0;
    const int64_t column = i % args.size[3];
#pragma unroll
    for (int d = 3; d >= 0; --d) {
      const int64_t next = rest / args.size[d], index = rest - next * args.size[d];
      x_at += index * args.x_stride[d];
      y_at += index * args.y_stride[d];
      rest = next;
    }
    A value = x != nullptr ? factor * A(widen(x[x_at])) : A(0);
    if (bias != nullptr) value += A(widen(bias[column]));
    y[y_at] = Narrow<To>::of(value);
  }
}

// NaN and infinities do not count: whatever multiplies them, they stay what they are.
__device__ __forceinline__ void products_find_largest(const ProductsScaleArgs& args) {
  __shared__ unsigned largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  constexpr int kSize = Pack<float>::kSize;
  constexpr unsigned kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
  const int64_t packs = (args.count + kSize - 1) / kSize, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned own = 0;
  for (int64_t p = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; p < packs; p += step) {
    float x[kSize];
    load_pack(args.x, p * kSize, args.count, 0.0f).unpack(x);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const unsigned bits = static_cast<unsigned>(__float_as_int(x[i])) & kMagnitude;
      if (bits < kInfinity && bits > own) own = bits;
    }
  }
  atomicMax(&largest, own);
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(&args.scale->largest, largest);
}

// One thread. k keeps both 2^k and 2^-k among the normal numbers of fp32.
__device__ __forceinline__ void products_set_scale(const ProductsScaleArgs& args) {
  constexpr int kDigits = 23, kBias = 127, kMost = 126;
  ProductsScale& to = *args.scale;
  int k = to.largest != 0 ? kProductsTop - (static_cast<int>(to.largest >> kDigits) - kBias) : 0;
  if (k > kMost) k = kMost;
  to.scale = __int_as_float((kBias + k) << kDigits);
  to.factors[0] = __int_as_float((kBias - k) << kDigits);
  to.factors[1] = 0;
  to.factors[2] = 1;
}

// A thread sums one column over the rows of its chunk, in four chains.
template <class T>
__device__ __forceinline__ void products_columns(const ProductsColumnsArgs& args) {
  using A = Accumulator<T>;
  const int64_t tiles = (args.columns + kProductsThreads - 1) / kProductsThreads;
  for (int64_t item = blockIdx.x; item < tiles * args.chunks; item += gridDim.x) {
    const int64_t chunk = item / tiles, column = (item - chunk * tiles) * kProductsThreads + threadIdx.x;
    if (column >= args.columns) continue;
    const int64_t begin = chunk * args.chunk_rows;
    const int64_t end = begin + args.chunk_rows < args.rows ? begin + args.chunk_rows : args.rows;
    const T* x = static_cast<const T*>(args.x) + column * args.column_stride;
    A sum[4] = {A(0), A(0), A(0), A(0)};
    int64_t n = begin;
    for (; n + 4 <= end; n += 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] += widen(x[(n + i) * args.row_stride]);
    }
    for (; n < end; ++n) sum[0] += widen(x[n * args.row_stride]);
    static_cast<A*>(args.part)[chunk * args.columns + column] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
}

template <class A>
__device__ __forceinline__ void products_columns_finish(const ProductsColumnsArgs& args) {
  const A* part = static_cast<const A*>(args.part);
  for (int64_t v = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; v < args.columns;
       v += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    A sum = A(0);
    for (int64_t chunk = 0; chunk < args.chunks; ++chunk) sum += part[chunk * args.columns + v];
    static_cast<A*>(args.sums)[v] = sum;
  }
}

// A row a block, as bits.
template <class Bits>
__device__ __forceinline__ void products_rows(const ProductsRowsArgs& args) {
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const bool is_active =
        (args.ids == nullptr || read_index(args.ids, n, args.ids_are_i64 != 0) != args.ignore_index) &&
        (args.mask == nullptr || args.mask[n] != 0);
    if (is_active && args.x == nullptr) continue;
    const Bits* x = static_cast<const Bits*>(args.x) + n * args.x_stride[0];
    Bits* y = static_cast<Bits*>(args.y) + n * args.y_stride[0];
    for (int64_t v = threadIdx.x; v < args.columns; v += blockDim.x) {
      y[v * args.y_stride[1]] = is_active ? x[v * args.x_stride[1]] : Bits(0);
    }
  }
}

__device__ __forceinline__ void products_report(const ProductsErrorsArgs& args) {
  DataErrorRecord& chunk = *args.chunk;
  if (chunk.state != 0) report_data_error(args.errors, chunk.kind, args.first_row + chunk.row, chunk.value);
  chunk.state = 0;
}

}  // namespace rlk::simt
