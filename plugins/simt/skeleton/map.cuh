// map: out = f(in...) for every element, whatever the shapes that broadcast to the output's and whatever their strides.
//
//   RLK_SIMT_MAP(Silu, (y), (x), silu_of(x, logistic(d, x)))
//   RLK_SIMT_MAP_WITH(Add, (out), (a, b), (alpha), add_times(d, a, b, alpha))
//   RLK_SIMT_MAP_OF(SiluAndMul, (y), (call.y), (gate, input), (first_half(call.x), second_half(call.x)), ...)
//
// The operator's name in the declarations' views, its outputs and inputs by their names there, parameters that the
// formula takes as doubles, and the formula (rlk/formula): several outputs are Two or Three. _OF names what is no
// argument itself, and says on the host what it is (host/map.hpp).
//
// A file of operators is compiled as RLK_SIMT_IMAGE. Each operator is a kernel that computes in fp32 and one in fp64,
// for every dtype: one branch at its head chooses between tensors that all have one dtype, in packs of 16 bytes, and
// loops that convert at each load. Strides are divided by with multipliers made on the host.
#pragma once

#if !defined(RLK_SIMT_MAP)  // the host reads operators too, with words of its own (host/maps.hpp)

#include "../element.cuh"

#define RLK_FORMULA __device__ __forceinline__
#include <rlk/formula/vocabulary.hpp>

#include "each.h"
#include "map.h"

namespace rlk::simt {

__device__ __forceinline__ int64_t map_divide(int64_t n, int64_t size, uint32_t multiplier, uint32_t shift) {
  if (n >> 31 != 0) return n / size;
  const uint32_t low = static_cast<uint32_t>(n);
  const uint32_t high = static_cast<uint32_t>((static_cast<uint64_t>(low) * multiplier) >> 32);
  return static_cast<int64_t>((high + low) >> shift);
}

// Where the piece begins in each tensor. size: elements of a piece.
template <int kTensors>
__device__ __forceinline__ void map_offsets(const MapArgs& args, int64_t piece, int size, int64_t (&at)[kTensors]) {
  const int inner = args.dims - 1;
#pragma unroll
  for (int t = 0; t < kTensors; ++t) at[t] = 0;
#pragma unroll 1
  for (int d = inner; d >= 0; --d) {
    int64_t index = piece;
    if (d > 0) {
      piece = map_divide(piece, args.shape[d], args.multiplier[d], args.shift[d]);
      index -= piece * args.shape[d];
    }
    if (d == inner) index *= size;
#pragma unroll
    for (int t = 0; t < kTensors; ++t) at[t] += index * args.tensor[t].stride[d];
  }
}

// kSize elements from there on, or one that is repeated; only the first `count` are there.
template <class T>
__device__ __forceinline__ Pack<T> map_load(const MapTensor& tensor, int64_t at, bool repeated, bool once,
                                            int64_t count) {
  const T* from = static_cast<const T*>(tensor.data) + at;
  Pack<T> pack;
  if (!repeated && count >= Pack<T>::kSize) {
    // What is not repeated along another dimension either is read once.
    pack.bits = once ? load_stream(from) : *reinterpret_cast<const uint4*>(from);
    return pack;
  }
  T element[Pack<T>::kSize];
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) element[i] = from[repeated || i >= count ? 0 : i];
  __builtin_memcpy(&pack.bits, element, sizeof(pack.bits));
  return pack;
}
template <class T>
__device__ __forceinline__ void map_store(const MapTensor& tensor, int64_t at, int64_t count, const Pack<T>& pack) {
  T* to = static_cast<T*>(tensor.data) + at;
  if (count >= Pack<T>::kSize) return store_stream(to, pack.bits);
  store_pack(to, count, pack);
}

// All tensors are T.
template <class F, class A, class T>
__device__ __forceinline__ void map_packs(const MapArgs& args) {
  constexpr int kSize = Pack<T>::kSize, kPacks = kMapElements / kSize, kOut = F::kOut, kIn = F::kIn;
  const int inner = args.dims - 1;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMapThreads * kPacks;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kMapThreads * kPacks + threadIdx.x; first < args.pieces;
       first += step) {
    Pack<T> in[kPacks][kIn];
    int64_t at[kPacks][kOut + kIn];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t piece = first + p * kMapThreads;
      if (piece >= args.pieces) continue;
      map_offsets(args, piece, kSize, at[p]);
#pragma unroll
      for (int k = 0; k < kIn; ++k) {
        const MapTensor& tensor = args.tensor[kOut + k];
        in[p][k] =
            map_load<T>(tensor, at[p][kOut + k], tensor.stride[inner] == 0, inner == 0, args.elements - piece * kSize);
      }
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t piece = first + p * kMapThreads;
      if (piece >= args.pieces) continue;
      A x[kIn][kSize], y[kOut][kSize];
#pragma unroll
      for (int k = 0; k < kIn; ++k) in[p][k].unpack(x[k]);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        A from[kIn], to[kOut];
#pragma unroll
        for (int k = 0; k < kIn; ++k) from[k] = x[k][i];
        F::apply(args.number, from, to);
#pragma unroll
        for (int k = 0; k < kOut; ++k) y[k][i] = to[k];
      }
#pragma unroll
      for (int k = 0; k < kOut; ++k) {
        Pack<T> pack;
        pack.pack(y[k]);
        map_store(args.tensor[k], at[p][k], args.elements - piece * kSize, pack);
      }
    }
  }
}

// Eight elements of any dtype that A holds exactly.
template <class A, class T>
__device__ __forceinline__ void map_load_eight(const MapTensor& tensor, int64_t at, bool repeated, bool once,
                                               int64_t count, A (&out)[kMapElements]) {
  constexpr int kSize = Pack<T>::kSize;
#pragma unroll
  for (int p = 0; p < kMapElements / kSize; ++p) {
    const int64_t own = repeated || p * kSize >= count ? 0 : p * kSize;
    Accumulator<T> wide[kSize];
    map_load<T>(tensor, at + own, repeated, once, count - own).unpack(wide);
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[p * kSize + i] = static_cast<A>(wide[i]);
  }
}
template <class A, class T>
__device__ __forceinline__ void map_store_eight(const MapTensor& tensor, int64_t at, int64_t count,
                                                const A (&in)[kMapElements]) {
  constexpr int kSize = Pack<T>::kSize;
#pragma unroll
  for (int p = 0; p < kMapElements / kSize; ++p) {
    T element[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) element[i] = Narrow<T>::of(in[p * kSize + i]);
    Pack<T> pack;
    __builtin_memcpy(&pack.bits, element, sizeof(pack.bits));
    if (p * kSize < count) map_store(tensor, at + p * kSize, count - p * kSize, pack);
  }
}

template <class F, class A>
__device__ __forceinline__ void map_mixed(const MapArgs& args) {
  constexpr int kOut = F::kOut, kIn = F::kIn;
  const int inner = args.dims - 1;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMapThreads;
  for (int64_t piece = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x; piece < args.pieces;
       piece += step) {
    int64_t at[kOut + kIn];
    map_offsets(args, piece, kMapElements, at);
    const int64_t count = args.elements - piece * kMapElements;
    A x[kIn][kMapElements], y[kOut][kMapElements];
#pragma unroll
    for (int k = 0; k < kIn; ++k) {
      const MapTensor& tensor = args.tensor[kOut + k];
      const bool repeated = tensor.stride[inner] == 0, once = inner == 0;
      const int64_t from = at[kOut + k];
      if (tensor.dtype == kMapBf16) {
        map_load_eight<A, bf16>(tensor, from, repeated, once, count, x[k]);
      } else if (tensor.dtype == kMapF16) {
        map_load_eight<A, f16>(tensor, from, repeated, once, count, x[k]);
      } else if (sizeof(A) == 4 || tensor.dtype == kMapF32) {
        map_load_eight<A, float>(tensor, from, repeated, once, count, x[k]);
      } else {
        map_load_eight<A, double>(tensor, from, repeated, once, count, x[k]);
      }
    }
#pragma unroll
    for (int i = 0; i < kMapElements; ++i) {
      A from[kIn], to[kOut];
#pragma unroll
      for (int k = 0; k < kIn; ++k) from[k] = x[k][i];
      F::apply(args.number, from, to);
#pragma unroll
      for (int k = 0; k < kOut; ++k) y[k][i] = to[k];
    }
#pragma unroll
    for (int k = 0; k < kOut; ++k) {
      const MapTensor& tensor = args.tensor[k];
      if (tensor.dtype == kMapBf16) {
        map_store_eight<A, bf16>(tensor, at[k], count, y[k]);
      } else if (tensor.dtype == kMapF16) {
        map_store_eight<A, f16>(tensor, at[k], count, y[k]);
      } else if (tensor.dtype == kMapF32) {
        map_store_eight<A, float>(tensor, at[k], count, y[k]);
      } else {
        if constexpr (sizeof(A) == 8) map_store_eight<A, double>(tensor, at[k], count, y[k]);
      }
    }
  }
}

template <class A>
__device__ __forceinline__ A map_load_one(const MapTensor& tensor, int64_t at) {
  if (tensor.dtype == kMapBf16) return static_cast<A>(widen(static_cast<const bf16*>(tensor.data)[at]));
  if (tensor.dtype == kMapF16) return static_cast<A>(widen(static_cast<const f16*>(tensor.data)[at]));
  if (sizeof(A) == 4 || tensor.dtype == kMapF32) return static_cast<A>(static_cast<const float*>(tensor.data)[at]);
  return static_cast<A>(static_cast<const double*>(tensor.data)[at]);
}
template <class A>
__device__ __forceinline__ void map_store_one(const MapTensor& tensor, int64_t at, A value) {
  if (tensor.dtype == kMapBf16) {
    static_cast<bf16*>(tensor.data)[at] = Narrow<bf16>::of(value);
  } else if (tensor.dtype == kMapF16) {
    static_cast<f16*>(tensor.data)[at] = Narrow<f16>::of(value);
  } else if (tensor.dtype == kMapF32) {
    static_cast<float*>(tensor.data)[at] = Narrow<float>::of(value);
  } else {
    static_cast<double*>(tensor.data)[at] = value;
  }
}

// Neighbouring threads take neighbouring elements.
template <class F, class A>
__device__ __forceinline__ void map_any(const MapArgs& args) {
  constexpr int kOut = F::kOut, kIn = F::kIn;
  const int64_t tile = static_cast<int64_t>(kMapThreads) * kMapElements;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * tile + threadIdx.x; first < args.pieces;
       first += gridDim.x * tile) {
#pragma unroll 1
    for (int i = 0; i < kMapElements; ++i) {
      const int64_t piece = first + i * kMapThreads;
      if (piece >= args.pieces) break;
      int64_t at[kOut + kIn];
      map_offsets(args, piece, 1, at);
      A from[kIn], to[kOut];
#pragma unroll
      for (int k = 0; k < kIn; ++k) from[k] = map_load_one<A>(args.tensor[kOut + k], at[kOut + k]);
      F::apply(args.number, from, to);
#pragma unroll
      for (int k = 0; k < kOut; ++k) map_store_one(args.tensor[k], at[k], to[k]);
    }
  }
}

template <class F, class A>
__device__ __forceinline__ void map(const MapArgs& args) {
  static_assert(F::kOut + F::kIn <= kMapTensors, "as many tensors as the arguments have room for");
  if (args.form == kMapAny) return map_any<F, A>(args);
  if (args.form == kMapMixed) return map_mixed<F, A>(args);
  if constexpr (sizeof(A) == 8) {
    map_packs<F, A, double>(args);
  } else {
    if (args.tensor[0].dtype == kMapBf16) return map_packs<F, A, bf16>(args);
    if (args.tensor[0].dtype == kMapF16) return map_packs<F, A, f16>(args);
    map_packs<F, A, float>(args);
  }
}

template <class V>
__device__ __forceinline__ void map_put(V value, V* out) {
  out[0] = value;
}
template <class V>
__device__ __forceinline__ void map_put(const formula::Two<V>& values, V* out) {
  out[0] = values.first;
  out[1] = values.second;
}
template <class V>
__device__ __forceinline__ void map_put(const formula::Three<V>& values, V* out) {
  out[0] = values.first;
  out[1] = values.second;
  out[2] = values.third;
}

}  // namespace rlk::simt

#define RLK_SIMT_MAP_INPUT(name) const V name = *rlk_in++;
#define RLK_SIMT_MAP_NUMBER(name) [[maybe_unused]] const double name = *rlk_number++;
#define RLK_SIMT_MAP_KERNEL(OP, suffix, A)                                                         \
  RLK_SIMT_KERNEL(rlk::simt::kMapThreads)                                                          \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _map_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::MapArgs) args) { \
    rlk::simt::map<rlk::formula::OP##Formula, A>(args);                                            \
  }
#define RLK_SIMT_MAP_DEFINE(OP, outs, ins, numbers, ...)                                                  \
  namespace rlk::formula {                                                                                \
  struct OP##Formula {                                                                                    \
    static constexpr int kOut = RLK_SIMT_COUNT outs, kIn = RLK_SIMT_COUNT ins;                            \
    template <class V>                                                                                    \
    static __device__ __forceinline__ void apply(const double* rlk_number, const V* rlk_in, V* rlk_out) { \
      [[maybe_unused]] const Lane<V> d{};                                                                 \
      RLK_SIMT_EACH(RLK_SIMT_MAP_NUMBER, RLK_SIMT_MAP_LIST numbers)                                       \
      RLK_SIMT_EACH(RLK_SIMT_MAP_INPUT, RLK_SIMT_MAP_LIST ins)                                            \
      rlk::simt::map_put<V>((__VA_ARGS__), rlk_out);                                                      \
    }                                                                                                     \
  };                                                                                                      \
  }                                                                                                       \
  RLK_SIMT_MAP_KERNEL(OP, f32, float)                                                                     \
  RLK_SIMT_MAP_KERNEL(OP, f64, double)
#define RLK_SIMT_MAP_LIST(...) __VA_ARGS__
#define RLK_SIMT_MAP(OP, outs, ins, ...) RLK_SIMT_MAP_DEFINE(OP, outs, ins, (none), __VA_ARGS__)
#define RLK_SIMT_MAP_WITH(OP, outs, ins, numbers, ...) RLK_SIMT_MAP_DEFINE(OP, outs, ins, numbers, __VA_ARGS__)
#define RLK_SIMT_MAP_OF(OP, outs, out_views, ins, in_views, ...) RLK_SIMT_MAP(OP, outs, ins, __VA_ARGS__)

#endif
