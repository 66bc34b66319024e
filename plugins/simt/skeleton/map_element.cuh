// How a map reads and writes: 16 bytes of each tensor where all have one dtype, or elements that are converted, eight
// or one. A is what the formula computes in: float, double, an unsigned integer for bits, int64_t between integers.
#pragma once

#include "../element.cuh"

#define RLK_FORMULA __device__ __forceinline__
#include <rlk/formula/convert.hpp>
#include <rlk/formula/vocabulary.hpp>

#include "map.h"

namespace rlk::simt {

template <class A, class B>
constexpr bool kMapSame = false;
template <class A>
inline constexpr bool kMapSame<A, A> = true;
template <class T>
constexpr bool kMapFloating = kMapSame<T, float> || kMapSame<T, double> || kMapSame<T, bf16> || kMapSame<T, f16>;
template <class A>
constexpr bool kMapBits =
    kMapSame<A, uint8_t> || kMapSame<A, uint16_t> || kMapSame<A, uint32_t> || kMapSame<A, uint64_t>;

struct Truth {  // an element of bool
  uint8_t byte;
};

// Calls function(T{}) with the type of elements. Not kEvery: floating dtypes and, of inputs, bytes; for bits the
// formula's own and bytes.
template <class A, bool kEvery, bool kInput, class Function>
__device__ __forceinline__ void with_map_type(int32_t dtype, const Function& function) {
  if constexpr (kMapBits<A>) {
    if (kInput && dtype == kMapU8) return function(uint8_t{});
    function(A{});
  } else {
    if constexpr (kEvery || kInput) {
      if (dtype == kMapU8) return function(uint8_t{});
    }
    if constexpr (kInput) {
      if (dtype == kMapBool) return function(uint8_t{});
    } else if constexpr (kEvery) {
      if (dtype == kMapBool) return function(Truth{});
    }
    if constexpr (kEvery) {
      if (dtype == kMapI8) return function(int8_t{});
      if (dtype == kMapI16) return function(int16_t{});
      if (dtype == kMapU16) return function(uint16_t{});
      if (dtype == kMapI32) return function(int32_t{});
      if (dtype == kMapU32) return function(uint32_t{});
      if (dtype == kMapI64) return function(int64_t{});
      if (dtype == kMapU64) return function(uint64_t{});
    }
    if constexpr (kMapFloating<A>) {
      if (dtype == kMapBf16) return function(bf16{});
      if (dtype == kMapF16) return function(f16{});
      if constexpr (kMapSame<A, double>) {
        if (dtype == kMapF64) return function(double{});
      }
      function(float{});
    }
  }
}

// The element as A. to_odd: where a double that is rounded again comes of a wide integer.
template <class A, class T>
__device__ __forceinline__ A map_widen(T x, bool to_odd) {
  if constexpr (kMapFloating<T>) {
    return static_cast<A>(widen(x));
  } else if constexpr (kMapSame<A, double> && sizeof(T) == 8) {
    return to_odd ? formula::to_odd_double(x) : static_cast<double>(x);
  } else {
    return static_cast<A>(x);
  }
}
template <class T, class A>
__device__ __forceinline__ T map_narrow(A x) {
  if constexpr (kMapSame<T, A>) {
    return x;
  } else if constexpr (kMapSame<T, Truth>) {
    return {static_cast<uint8_t>(x != 0 ? 1 : 0)};
  } else if constexpr (kMapFloating<T>) {
    return Narrow<T>::of(x);
  } else if constexpr (kMapFloating<A>) {
    return formula::to_integer<T>(x);
  } else {
    return static_cast<T>(x);
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
template <class A, class T>
struct MapPacks {
  static constexpr int kSize = Pack<T>::kSize;
  // One of fp64, whose formulas are long.
  static constexpr int kPieces = sizeof(A) == 8 || kSize > kMapElements ? 1 : kMapElements / kSize;
  using Raw = Pack<T>;
  using Tag = formula::Lane<A>;
  static __device__ __forceinline__ Raw load(const MapArgs&, const MapTensor& tensor, int64_t at, int inner,
                                             int64_t count) {
    return map_load<T>(tensor, at, tensor.stride[inner] == 0, inner == 0, count);
  }
  // Tensor t's pack of a line.
  static __device__ __forceinline__ Raw load_line(const MapLineArgs& args, int t, int64_t piece) {
    return {load_stream(static_cast<const uint4*>(args.begin[t]) + piece)};
  }
  static __device__ __forceinline__ void widen(const MapLineArgs&, int, const Raw& raw, A (&out)[kSize]) {
    T element[kSize];
    __builtin_memcpy(element, &raw.bits, sizeof(raw.bits));
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[i] = map_widen<A>(element[i], false);
  }
  static __device__ __forceinline__ Raw narrow(const MapLineArgs&, const A (&in)[kSize]) {
    T element[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) element[i] = map_narrow<T>(in[i]);
    Raw pack;
    __builtin_memcpy(&pack.bits, element, sizeof(pack.bits));
    return pack;
  }
  static __device__ __forceinline__ void store(const MapArgs& args, const MapTensor& tensor, int64_t at, int64_t count,
                                               const A (&in)[kSize]) {
    map_store(tensor, at, count, narrow(args, in));
  }
};

template <class A>
using MapOwn = MapPacks<A, A>;

// All tensors are bf16, or all f16: loads ask for neither, and the formula is there once.
template <class A>
struct MapHalves {
  static constexpr int kSize = Pack<uint16_t>::kSize, kPieces = kMapElements / kSize;
  using Raw = Pack<uint16_t>;
  using Tag = formula::BriefLane;
  static __device__ __forceinline__ Raw load(const MapArgs& args, const MapTensor& tensor, int64_t at, int inner,
                                             int64_t count) {
    return MapPacks<uint16_t, uint16_t>::load(args, tensor, at, inner, count);
  }
  static __device__ __forceinline__ Raw load_line(const MapLineArgs& args, int t, int64_t piece) {
    return MapPacks<uint16_t, uint16_t>::load_line(args, t, piece);
  }
  static __device__ __forceinline__ void widen(const MapLineArgs& args, int t, const Raw& raw, A (&out)[kSize]) {
    if (args.dtype == kMapBf16) return MapPacks<A, bf16>::widen(args, t, {raw.bits}, out);
    MapPacks<A, f16>::widen(args, t, {raw.bits}, out);
  }
  static __device__ __forceinline__ Raw narrow(const MapLineArgs& args, const A (&in)[kSize]) {
    if (args.dtype == kMapBf16) return {MapPacks<A, bf16>::narrow(args, in).bits};
    return {MapPacks<A, f16>::narrow(args, in).bits};
  }
  static __device__ __forceinline__ void store(const MapArgs& args, const MapTensor& tensor, int64_t at, int64_t count,
                                               const A (&in)[kSize]) {
    map_store(tensor, at, count, narrow(args, in));
  }
};

// Formulas of fp64 over tensors of fp32 and masks: four elements of each. A tensor that is not there is a number.
struct MapLong {
  static constexpr int kSize = Pack<float>::kSize;
  using Raw = Pack<float>;
  using Tag = formula::BriefLongLane;
  static __device__ __forceinline__ bool is_mask(const MapLineArgs& args, int t) { return (args.masks >> t & 1) != 0; }
  static __device__ __forceinline__ Raw load_line(const MapLineArgs& args, int t, int64_t piece) {
    Raw raw = {};
    if (args.begin[t] == nullptr) return raw;
    if (!is_mask(args, t)) {
      raw.bits = load_stream(static_cast<const uint4*>(args.begin[t]) + piece);
    } else {
      raw.bits.x = static_cast<const uint32_t*>(args.begin[t])[piece];
    }
    return raw;
  }
  static __device__ __forceinline__ void widen(const MapLineArgs& args, int t, const Raw& raw, double (&out)[kSize]) {
    if (args.begin[t] == nullptr) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) out[i] = args.value[t];
    } else if (!is_mask(args, t)) {
      MapPacks<double, float>::widen(args, t, raw, out);
    } else {
#pragma unroll
      for (int i = 0; i < kSize; ++i) out[i] = (raw.bits.x >> (8 * i) & 0xff) != 0 ? 1 : 0;
    }
  }
  static __device__ __forceinline__ Raw narrow(const MapLineArgs& args, const double (&in)[kSize]) {
    return MapPacks<double, float>::narrow(args, in);
  }
};

// The same of formulas that compute in fp32 what leaves no doubt.
struct MapShort : MapLong {
  static __device__ __forceinline__ void widen(const MapLineArgs& args, int t, const Raw& raw, float (&out)[kSize]) {
    if (args.begin[t] == nullptr) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) out[i] = static_cast<float>(args.value[t]);
    } else if (!is_mask(args, t)) {
      __builtin_memcpy(out, &raw.bits, sizeof(raw.bits));
    } else {
#pragma unroll
      for (int i = 0; i < kSize; ++i) out[i] = (raw.bits.x >> (8 * i) & 0xff) != 0 ? 1 : 0;
    }
  }
  static __device__ __forceinline__ float element(const MapLineArgs& args, int t, int64_t at) {
    if (args.begin[t] == nullptr) return static_cast<float>(args.value[t]);
    if (!is_mask(args, t)) return static_cast<const float*>(args.begin[t])[at];
    return static_cast<const uint8_t*>(args.begin[t])[at] != 0 ? 1 : 0;
  }
  static __device__ __forceinline__ Raw narrow(const MapLineArgs& args, const float (&in)[kSize]) {
    return MapPacks<float, float>::narrow(args, in);
  }
};

template <int kBytes>
struct MapWord {
  using type = uint64_t;
};
template <>
struct MapWord<4> {
  using type = uint32_t;
};

// kCount elements of any dtype that A holds exactly: eight, four, or one.
template <class A, bool kEvery, int kCount, class Lane = formula::Lane<A>>
struct MapConverted {
  static constexpr int kSize = kCount, kPieces = 1;
  struct Raw {
    A element[kSize];
  };
  using Tag = Lane;
  template <class T>
  static constexpr bool kInPacks = Pack<T>::kSize <= kSize;
  // Several elements that are less than a pack: a tensor that fits packs has them where a word may be.
  template <class T>
  static constexpr bool kInWord = kSize > 1 && (kSize * sizeof(T) == 4 || kSize * sizeof(T) == 8);
  template <class T>
  using Word = typename MapWord<kSize * sizeof(T)>::type;

  static __device__ __forceinline__ Raw load(const MapArgs& args, const MapTensor& tensor, int64_t at, int inner,
                                             int64_t count) {
    Raw out;
    if (tensor.data == nullptr) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) out.element[i] = static_cast<A>(tensor.value);
      return out;
    }
    const bool repeated = tensor.stride[inner] == 0, to_odd = args.tensor[0].dtype != kMapF64;
    with_map_type<A, kEvery, true>(tensor.dtype, [&](auto type) {
      using T = decltype(type);
      if constexpr (kInPacks<T>) {
        constexpr int kPack = Pack<T>::kSize;
#pragma unroll
        for (int p = 0; p < kSize; p += kPack) {
          const int64_t own = repeated || p >= count ? 0 : p;
          const Pack<T> pack = map_load<T>(tensor, at + own, repeated, inner == 0, count - own);
          T element[kPack];
          __builtin_memcpy(element, &pack.bits, sizeof(pack.bits));
#pragma unroll
          for (int i = 0; i < kPack; ++i) out.element[p + i] = map_widen<A>(element[i], to_odd);
        }
      } else {
        const T* from = static_cast<const T*>(tensor.data) + at;
        if constexpr (kInWord<T>) {
          if (!repeated && count >= kSize) {
            T element[kSize];
            const auto word = *reinterpret_cast<const Word<T>*>(from);
            __builtin_memcpy(element, &word, sizeof(word));
#pragma unroll
            for (int i = 0; i < kSize; ++i) out.element[i] = map_widen<A>(element[i], to_odd);
            return;
          }
        }
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          out.element[i] = map_widen<A>(from[repeated || i >= count ? 0 : i], to_odd);
        }
      }
    });
    return out;
  }
  static __device__ __forceinline__ void widen(const MapLineArgs&, int, const Raw& raw, A (&out)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[i] = raw.element[i];
  }
  static __device__ __forceinline__ void store(const MapArgs&, const MapTensor& tensor, int64_t at, int64_t count,
                                               const A (&in)[kSize]) {
    with_map_type<A, kEvery, false>(tensor.dtype, [&](auto type) {
      using T = decltype(type);
      if constexpr (kInPacks<T>) {
        constexpr int kPack = Pack<T>::kSize;
#pragma unroll
        for (int p = 0; p < kSize; p += kPack) {
          T element[kPack];
#pragma unroll
          for (int i = 0; i < kPack; ++i) element[i] = map_narrow<T>(in[p + i]);
          Pack<T> pack;
          __builtin_memcpy(&pack.bits, element, sizeof(pack.bits));
          if (p < count) map_store(tensor, at + p, count - p, pack);
        }
      } else {
        T* to = static_cast<T*>(tensor.data) + at;
        if constexpr (kInWord<T>) {
          if (count >= kSize) {
            T element[kSize];
            Word<T> word;
#pragma unroll
            for (int i = 0; i < kSize; ++i) element[i] = map_narrow<T>(in[i]);
            __builtin_memcpy(&word, element, sizeof(word));
            *reinterpret_cast<Word<T>*>(to) = word;
            return;
          }
        }
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          if (i < count) to[i] = map_narrow<T>(in[i]);
        }
      }
    });
  }
};

}  // namespace rlk::simt
