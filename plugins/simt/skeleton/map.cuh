// map: out = f(in...) for every element, whatever the shapes that broadcast to the output's and whatever their strides.
//
//   RLK_SIMT_MAP(Silu, (y), (x), silu_of(d, x, logistic(d, x)))
//   RLK_SIMT_MAP_WITH(Add, (out), (a, b), (alpha), add_times(d, a, b, alpha))
//   RLK_SIMT_MAP_OF(SiluAndMul, (y), (call.y), (gate, input), (first_half(call.x), second_half(call.x)), ...)
//   RLK_SIMT_MAP_BY(AdamwStep, outs, out_views, ins, in_views, (AdamwRates, rates, adamw_rates(call.params)), ...)
//
// The operator's name in the declarations' views, its outputs and inputs by their names there, parameters that the
// formula takes as doubles, and the formula (rlk/formula): several outputs are Two or Three. _OF names what is no
// argument itself, and says on the host what it is (host/map.hpp): a part of a tensor, an argument that may be absent.
// _BY passes what the host makes of a call, once, in place of the parameters: a struct of numbers, or one. Beside
// these:
//
//   RLK_SIMT_MAP_HEAVY   is _WITH, of a formula that has as much to compute as memory has to bring
//   RLK_SIMT_MAP_F64_BY  computes in fp64 whatever the tensors are
//   RLK_SIMT_MAP_SHORT_BY   does so, too, but for elements of which fp32 leaves no doubt. Before the formula stand a
//                        number for what the call asks (MapShape) and an expression with the results in fp32 and
//                        whether they are sure (values, is_sure). It serves tensors without fp64
//   RLK_SIMT_MAP_BITS    moves elements of any dtype; an input of bytes is a mask
//   RLK_SIMT_MAP_CAST    converts between any dtypes
//   RLK_SIMT_PART, RLK_SIMT_PART_BITS, RLK_SIMT_MAPS   an operator of several maps, one after the other; without its
//   first output a map
//                        is left out
//
// A file of operators is compiled as RLK_SIMT_IMAGE. Each map is a kernel that computes in fp32 and one in fp64, for
// every floating dtype: one branch at its head chooses between tensors that all have one dtype, in packs of 16 bytes,
// and loops that convert at each load. Strides are divided by with multipliers made on the host. Beside them the
// commonest calls, tensors of one dtype without gaps, or with gaps between rows alone, have kernels of their own,
// "_line": what the other forms need of registers would leave too few threads on a multiprocessor to keep its memory
// busy.
#pragma once

#if !defined(RLK_SIMT_MAP)  // the host reads operators too, with words of its own (host/maps.hpp)

#include "each.h"
#include "map_element.cuh"

namespace rlk::simt {

// Below 2^31.
__device__ __forceinline__ uint32_t map_divide_few(uint32_t n, uint32_t multiplier, uint32_t shift) {
  const uint32_t high = static_cast<uint32_t>((static_cast<uint64_t>(n) * multiplier) >> 32);
  return (high + n) >> shift;
}
__device__ __forceinline__ int64_t map_divide(int64_t n, int64_t size, uint32_t multiplier, uint32_t shift) {
  if (n >> 31 != 0) return n / size;
  return static_cast<int64_t>(map_divide_few(static_cast<uint32_t>(n), multiplier, shift));
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
      piece = map_divide(piece, args.shape[d], args.multipliers[d], args.shifts[d]);
      index -= piece * args.shape[d];
    }
    if (d == inner) index *= size;
#pragma unroll
    for (int t = 0; t < kTensors; ++t) at[t] += index * args.tensor[t].stride[d];
  }
}

// cast: any dtype is converted. f64: computes in fp64 whatever the tensors are; shortened: or in fp32 what leaves no
// doubt. heavy: see RLK_SIMT_MAP_HEAVY.
enum class MapFormula { plain, heavy, f64, shortened, cast };

template <int kCount>
struct MapFloats {
  float of[kCount];
};
// An element that fp32 leaves. Rare: as a function of its own it takes no registers from the others.
template <class F>
RLK_SIMT_APART MapFloats<F::kOut> map_left(const MapLineArgs& args, MapFloats<F::kIn> in) {
  double from[F::kIn], to[F::kOut];
#pragma unroll
  for (int k = 0; k < F::kIn; ++k) from[k] = static_cast<double>(in.of[k]);
  F::template apply<formula::BriefLongLane>(args.number, from, to);
  MapFloats<F::kOut> out;
#pragma unroll
  for (int k = 0; k < F::kOut; ++k) out.of[k] = Narrow<float>::of(to[k]);
  return out;
}
// What of a call the loop need not ask at each element: a number of the formula's; 0 is any call.
template <int kShape>
struct MapShape {
  static constexpr int value = kShape;
};
// The numbers in fp32 of several elements; a bit each of those that are not sure.
template <class F, class Shape, int kSize>
__device__ __forceinline__ uint32_t map_in_short(const MapLineArgs& args, const float (&x)[F::kIn][kSize],
                                                 float (&y)[F::kOut][kSize]) {
  uint32_t left = 0;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    float from[F::kIn], to[F::kOut];
#pragma unroll
    for (int k = 0; k < F::kIn; ++k) from[k] = x[k][i];
    if (!F::in_short(Shape{}, args.number, from, to)) left |= 1u << i;
#pragma unroll
    for (int k = 0; k < F::kOut; ++k) y[k][i] = to[k];
  }
  return left;
}
// What becomes of a piece of each input, in fp32 where that leaves no doubt. Which form an element is read in makes no
// difference to it.
template <class F, class Form>
__device__ __forceinline__ void map_compute_short(const MapLineArgs& args, const typename Form::Raw (&in)[F::kIn],
                                                  float (&y)[F::kOut][Form::kSize]) {
  float x[F::kIn][Form::kSize];
#pragma unroll
  for (int k = 0; k < F::kIn; ++k) Form::widen(args, F::kOut + k, in[k], x[k]);
  const uint32_t left = map_in_short<F, MapShape<0>>(args, x, y);
#pragma unroll
  for (int i = 0; i < Form::kSize; ++i) {
    if ((left >> i & 1) == 0) continue;
    MapFloats<F::kIn> from;
#pragma unroll
    for (int k = 0; k < F::kIn; ++k) from.of[k] = x[k][i];
    const MapFloats<F::kOut> to = map_left<F>(args, from);
#pragma unroll
    for (int k = 0; k < F::kOut; ++k) y[k][i] = to.of[k];
  }
}

// What becomes of a piece of each input. Form: how it is read and written (map_element.cuh).
template <class F, class A, class Form>
__device__ __forceinline__ void map_compute(const MapLineArgs& args, const typename Form::Raw (&in)[F::kIn],
                                            A (&y)[F::kOut][Form::kSize]) {
  if constexpr (F::kKind == MapFormula::shortened && kMapSame<A, float>) {
    map_compute_short<F, Form>(args, in, y);
  } else {
    constexpr int kSize = Form::kSize, kOut = F::kOut, kIn = F::kIn;
    A x[kIn][kSize];
#pragma unroll
    for (int k = 0; k < kIn; ++k) Form::widen(args, kOut + k, in[k], x[k]);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      A from[kIn], to[kOut];
#pragma unroll
      for (int k = 0; k < kIn; ++k) from[k] = x[k][i];
      F::template apply<typename Form::Tag>(args.number, from, to);
#pragma unroll
      for (int k = 0; k < kOut; ++k) y[k][i] = to[k];
    }
  }
}

// Where a pack of lines is in each tensor: where its number says, or in a row.
struct MapLinePlace {
  int64_t piece;

  __device__ __forceinline__ MapLinePlace(const MapLineArgs&, int64_t of) : piece(of) {}
  __device__ __forceinline__ int64_t of(const MapLineArgs&, int) const { return piece; }
};
struct MapRowPlace {
  int32_t row, column;

  __device__ __forceinline__ MapRowPlace(const MapLineArgs& args, int64_t of) {
    const auto piece = static_cast<uint32_t>(of);
    const uint32_t own = map_divide_few(piece, args.multiplier, args.shift);
    row = static_cast<int32_t>(own);
    column = static_cast<int32_t>(piece - own * args.row);
  }
  __device__ __forceinline__ int64_t of(const MapLineArgs& args, int t) const {
    return static_cast<int64_t>(row) * args.stride[t] + column;
  }
};

// The piece of a thread, of which a block has kPacks for each of its own.
template <int kPacks>
__device__ __forceinline__ int64_t map_own_piece(const MapLineArgs& args) {
  return (args.first_block + blockIdx.x) * (kPacks * kMapThreads) + threadIdx.x;
}

// Tensors of one dtype, in packs. A thread finds its places before the kernels ahead are done.
template <class F, class A, class Form, class Place, int kPacks>
__device__ __forceinline__ void map_line(const MapLineArgs& args) {
  constexpr int kOut = F::kOut, kIn = F::kIn;
  const int64_t first = map_own_piece<kPacks>(args);
  const bool is_there = first < args.pieces;
  const Place own(args, first);
  wait_for_earlier();
  if (!is_there) return;
  const auto place = [&](int p) { return p == 0 ? own : Place(args, first + p * kMapThreads); };
  typename Form::Raw in[kPacks][kIn];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (p > 0 && first + p * kMapThreads >= args.pieces) continue;
#pragma unroll
    for (int k = 0; k < kIn; ++k) in[p][k] = Form::load_line(args, kOut + k, place(p).of(args, kOut + k));
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (p > 0 && first + p * kMapThreads >= args.pieces) continue;
    A y[kOut][Form::kSize];
    map_compute<F, A, Form>(args, in[p], y);
#pragma unroll
    for (int k = 0; k < kOut; ++k) {
      if (k > 0 && args.begin[k] == nullptr) continue;
      store_stream(static_cast<uint4*>(args.begin[k]) + place(p).of(args, k), Form::narrow(args, y[k]).bits);
    }
  }
}

// The same of a formula that computes in fp32 what leaves no doubt. An element that is left is read again: to keep what
// it is made of would take registers from all others.
template <class F>
RLK_SIMT_APART MapFloats<F::kOut> map_left_of_line(const MapLineArgs& args, int64_t at) {
  MapFloats<F::kIn> from;
#pragma unroll
  for (int k = 0; k < F::kIn; ++k) from.of[k] = MapShort::element(args, F::kOut + k, at);
  return map_left<F>(args, from);
}
template <class F, class Shape>
__device__ __forceinline__ void map_short_line_of(const MapLineArgs& args) {
  constexpr int kOut = F::kOut, kIn = F::kIn, kSize = MapShort::kSize;
  const int64_t piece = map_own_piece<1>(args);
  const bool is_there = piece < args.pieces;
  wait_for_earlier();
  if (!is_there) return;
  MapShort::Raw in[kIn];
#pragma unroll
  for (int k = 0; k < kIn; ++k) in[k] = MapShort::load_line(args, kOut + k, piece);
  float x[kIn][kSize], y[kOut][kSize];
#pragma unroll
  for (int k = 0; k < kIn; ++k) MapShort::widen(args, kOut + k, in[k], x[k]);
  const uint32_t left = map_in_short<F, Shape>(args, x, y);
  if (left != 0) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if ((left >> i & 1) == 0) continue;
      const MapFloats<kOut> to = map_left_of_line<F>(args, piece * kSize + i);
#pragma unroll
      for (int k = 0; k < kOut; ++k) y[k][i] = to.of[k];
    }
  }
#pragma unroll
  for (int k = 0; k < kOut; ++k) {
    if (k > 0 && args.begin[k] == nullptr) continue;
    store_stream(static_cast<uint4*>(args.begin[k]) + piece, MapShort::narrow(args, y[k]).bits);
  }
}

template <class F>
__device__ __forceinline__ void map_short_line(const MapLineArgs& args) {
  const int shape = F::shape_of(args.number);
  if (shape == 1) return map_short_line_of<F, MapShape<1>>(args);
  if (shape == 2) return map_short_line_of<F, MapShape<2>>(args);
  map_short_line_of<F, MapShape<0>>(args);
}

// A thread's pieces of a step are read first, then computed and written.
template <class F, class A, class Form>
__device__ __forceinline__ void map_pieces(const MapArgs& args) {
  constexpr int kSize = Form::kSize, kPieces = Form::kPieces, kOut = F::kOut, kIn = F::kIn;
  const int inner = args.dims - 1;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMapThreads * kPieces;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kMapThreads * kPieces + threadIdx.x; first < args.pieces;
       first += step) {
    typename Form::Raw in[kPieces][kIn];
    int64_t at[kPieces][kOut + kIn];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int64_t piece = first + p * kMapThreads;
      if (piece >= args.pieces) continue;
      map_offsets(args, piece, kSize, at[p]);
#pragma unroll
      for (int k = 0; k < kIn; ++k) {
        in[p][k] = Form::load(args, args.tensor[kOut + k], at[p][kOut + k], inner, args.elements - piece * kSize);
      }
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int64_t piece = first + p * kMapThreads;
      if (piece >= args.pieces) continue;
      A y[kOut][kSize];
      map_compute<F, A, Form>(args, in[p], y);
#pragma unroll
      for (int k = 0; k < kOut; ++k) {
        if (k > 0 && args.tensor[k].data == nullptr) continue;
        Form::store(args, args.tensor[k], at[p][k], args.elements - piece * kSize, y[k]);
      }
    }
  }
}

template <class F, class A, class Form>
__device__ __forceinline__ void map_lines(const MapLineArgs& args) {
  if constexpr (F::kKind == MapFormula::heavy && sizeof(typename Form::Raw) / Form::kSize == 2) {
    if (args.line == kMapPairs) return map_line<F, A, Form, MapLinePlace, 2>(args);
  }
  if constexpr (F::kKind != MapFormula::f64) {
    if (args.line == kMapRows) return map_line<F, A, Form, MapRowPlace, 1>(args);
  }
  map_line<F, A, Form, MapLinePlace, 1>(args);
}
// Of a formula of fp64 that writes less: the same bits in every form.
template <class F>
__device__ __forceinline__ void map_brief(const MapArgs& args) {
  using Lane = formula::BriefLongLane;
  if (args.form == kMapAny) return map_pieces<F, double, MapConverted<double, false, 1, Lane>>(args);
  map_pieces<F, double, MapConverted<double, false, kMapLongElements, Lane>>(args);
}
// And of one that computes in fp32 what leaves no doubt.
template <class F>
__device__ __forceinline__ void map_short(const MapArgs& args) {
  if (args.form == kMapAny) return map_pieces<F, float, MapConverted<float, false, 1>>(args);
  map_pieces<F, float, MapConverted<float, false, kMapLongElements>>(args);
}
template <class F, class A>
__device__ __forceinline__ void map(const MapArgs& args) {
  static_assert(F::kOut + F::kIn <= kMapTensors, "as many tensors as the arguments have room for");
  constexpr bool kEvery = F::kKind == MapFormula::cast && sizeof(A) == 8;
  constexpr bool kIsLong = F::kKind == MapFormula::f64 || F::kKind == MapFormula::shortened;
  if constexpr (F::kKind == MapFormula::shortened) {
    if (args.brief == 2) return map_short<F>(args);
  }
  if constexpr (kIsLong) {
    if (args.brief != 0) return map_brief<F>(args);
  }
  if constexpr (kMapSame<A, float> && !kIsLong) {  // with the bits that packs of them have
    if (args.form == kMapAny && args.halves != 0) {
      return map_pieces<F, A, MapConverted<A, kEvery, 1, formula::BriefLane>>(args);
    }
  }
  if (args.form == kMapAny) return map_pieces<F, A, MapConverted<A, kEvery, 1>>(args);
  constexpr int kElements = kIsLong ? kMapLongElements : kMapElements;
  if (kEvery || args.form == kMapMixed) return map_pieces<F, A, MapConverted<A, kEvery, kElements>>(args);
  if constexpr (!kEvery) {
    if constexpr (kMapSame<A, float>) {
      if (args.dtype != kMapF32) return map_pieces<F, A, MapHalves<A>>(args);
    }
    map_pieces<F, A, MapPacks<A, A>>(args);
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

#define RLK_SIMT_MAP_LIST(...) __VA_ARGS__
#define RLK_SIMT_MAP_INPUT(name) const V name = *rlk_in++;
#define RLK_SIMT_MAP_NUMBER(name) [[maybe_unused]] const double name = *rlk_number++;
#define RLK_SIMT_MAP_STRUCT(Type, name, value) \
  Type name;                                   \
  __builtin_memcpy(&name, rlk_number, sizeof(name));
#define RLK_SIMT_MAP_KERNEL(NAME, suffix, A) RLK_SIMT_MAP_KERNEL_OF(NAME, suffix, A, rlk::simt::kMapThreads)
// The last: what the kernel is told of its blocks.
#define RLK_SIMT_MAP_KERNEL_OF(NAME, suffix, A, ...)                                                 \
  RLK_SIMT_KERNEL(__VA_ARGS__)                                                                       \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _map_##NAME##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::MapArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                   \
    rlk::simt::map<rlk::formula::NAME##Formula, A>(args);                                            \
  }
// Of lines. Form: of A's own dtype, without a name of its type's that has commas.
#define RLK_SIMT_MAP_LINE(NAME, suffix, A, Form, ...)                                                           \
  RLK_SIMT_KERNEL(__VA_ARGS__)                                                                                  \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _map_##NAME##_##suffix##_line)(RLK_SIMT_ARGUMENT(rlk::simt::MapLineArgs) args) { \
    rlk::simt::map_lines<rlk::formula::NAME##Formula, A, rlk::simt::Form>(args);                                \
  }
// kind: MapFormula's. numbers: statements that name what the formula takes of the call.
#define RLK_SIMT_MAP_FORMULA(NAME, outs, ins, kind, numbers, ...)                                         \
  namespace rlk::formula {                                                                                \
  struct NAME##Formula {                                                                                  \
    static constexpr int kOut = RLK_SIMT_COUNT outs, kIn = RLK_SIMT_COUNT ins;                            \
    static constexpr rlk::simt::MapFormula kKind = rlk::simt::MapFormula::kind;                           \
    template <class D, class V>                                                                           \
    static __device__ __forceinline__ void apply(const double* rlk_number, const V* rlk_in, V* rlk_out) { \
      [[maybe_unused]] const D d{};                                                                       \
      RLK_SIMT_MAP_LIST numbers RLK_SIMT_EACH(RLK_SIMT_MAP_INPUT, RLK_SIMT_MAP_LIST ins)                  \
          rlk::simt::map_put<V>((__VA_ARGS__), rlk_out);                                                  \
    }                                                                                                     \
  };                                                                                                      \
  }
// That of a formula which is shortened: expression has values and is_sure.
#define RLK_SIMT_MAP_SHORTENED(NAME, ins, numbers, shape_of_call, expression)                                   \
  namespace rlk::formula {                                                                                      \
  struct NAME##Shortened : NAME##Formula {                                                                      \
    static constexpr rlk::simt::MapFormula kKind = rlk::simt::MapFormula::shortened;                            \
    static __device__ __forceinline__ int shape_of(const double* rlk_number) {                                  \
      RLK_SIMT_MAP_LIST numbers return shape_of_call;                                                           \
    }                                                                                                           \
    template <class Shape>                                                                                      \
    static __device__ __forceinline__ bool in_short(Shape shape, const double* rlk_number, const float* rlk_in, \
                                                    float* rlk_out) {                                           \
      using V = float;                                                                                          \
      RLK_SIMT_MAP_LIST numbers RLK_SIMT_EACH(RLK_SIMT_MAP_INPUT, RLK_SIMT_MAP_LIST ins) const auto made =      \
          (expression);                                                                                         \
      rlk::simt::map_put<V>(made.values, rlk_out);                                                              \
      return made.is_sure;                                                                                      \
    }                                                                                                           \
  };                                                                                                            \
  }
#define RLK_SIMT_MAP_DEFINE_OF(NAME, outs, ins, kind, numbers, ...)              \
  RLK_SIMT_MAP_FORMULA(NAME, outs, ins, kind, numbers, __VA_ARGS__)              \
  RLK_SIMT_MAP_KERNEL(NAME, f32, float)                                          \
  RLK_SIMT_MAP_KERNEL(NAME, f64, double)                                         \
  RLK_SIMT_MAP_LINE(NAME, f32, float, MapOwn<float>, rlk::simt::kMapThreads)     \
  RLK_SIMT_MAP_LINE(NAME, half, float, MapHalves<float>, rlk::simt::kMapThreads) \
  RLK_SIMT_MAP_LINE(NAME, f64, double, MapOwn<double>, rlk::simt::kMapThreads)

#define RLK_SIMT_MAP_DEFINE(NAME, outs, ins, numbers, ...) \
  RLK_SIMT_MAP_DEFINE_OF(NAME, outs, ins, plain, numbers, __VA_ARGS__)

#define RLK_SIMT_MAP(OP, outs, ins, ...) RLK_SIMT_MAP_DEFINE(OP, outs, ins, (), __VA_ARGS__)
#define RLK_SIMT_MAP_WITH(OP, outs, ins, numbers, ...) \
  RLK_SIMT_MAP_DEFINE(OP, outs, ins, (RLK_SIMT_EACH(RLK_SIMT_MAP_NUMBER, RLK_SIMT_MAP_LIST numbers)), __VA_ARGS__)
#define RLK_SIMT_MAP_HEAVY(OP, outs, ins, numbers, ...)                                                         \
  RLK_SIMT_MAP_DEFINE_OF(OP, outs, ins, heavy, (RLK_SIMT_EACH(RLK_SIMT_MAP_NUMBER, RLK_SIMT_MAP_LIST numbers)), \
                         __VA_ARGS__)
#define RLK_SIMT_MAP_OF(OP, outs, out_views, ins, in_views, ...) RLK_SIMT_MAP_DEFINE(OP, outs, ins, (), __VA_ARGS__)
#define RLK_SIMT_MAP_BY(OP, outs, out_views, ins, in_views, made, ...) \
  RLK_SIMT_MAP_DEFINE(OP, outs, ins, (RLK_SIMT_MAP_STRUCT made), __VA_ARGS__)
#define RLK_SIMT_MAP_F64_BY(OP, outs, out_views, ins, in_views, made, ...)          \
  RLK_SIMT_MAP_FORMULA(OP, outs, ins, f64, (RLK_SIMT_MAP_STRUCT made), __VA_ARGS__) \
  RLK_SIMT_MAP_KERNEL_OF(OP, f64, double, rlk::simt::kMapThreads, 3)                \
  RLK_SIMT_MAP_LINE(OP, f64, double, MapLong, rlk::simt::kMapThreads, 4)
#define RLK_SIMT_MAP_SHORT_BY(OP, outs, out_views, ins, in_views, made, shape_of_call, expression, ...) \
  RLK_SIMT_MAP_FORMULA(OP, outs, ins, f64, (RLK_SIMT_MAP_STRUCT made), __VA_ARGS__)                     \
  RLK_SIMT_MAP_SHORTENED(OP, ins, (RLK_SIMT_MAP_STRUCT made), shape_of_call, expression)                \
  RLK_SIMT_KERNEL(rlk::simt::kMapThreads, 3)                                                            \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _map_##OP##_f64)(RLK_SIMT_ARGUMENT(rlk::simt::MapArgs) args) {           \
    rlk::simt::wait_for_earlier();                                                                      \
    rlk::simt::map<rlk::formula::OP##Shortened, double>(args);                                          \
  }                                                                                                     \
  RLK_SIMT_KERNEL(rlk::simt::kMapThreads, rlk::formula::OP##Formula::kIn > 4 ? 4 : 6)                   \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _map_##OP##_f64_line)(RLK_SIMT_ARGUMENT(rlk::simt::MapLineArgs) args) {  \
    rlk::simt::map_short_line<rlk::formula::OP##Shortened>(args);                                       \
  }
#define RLK_SIMT_MAP_BITS(OP, outs, ins, ...) RLK_SIMT_PART_BITS(OP, OP, outs, (), ins, (), __VA_ARGS__)
#define RLK_SIMT_PART_BITS(OP, NAME, outs, out_views, ins, in_views, ...) \
  RLK_SIMT_MAP_FORMULA(NAME, outs, ins, plain, (), __VA_ARGS__)           \
  RLK_SIMT_MAP_BITS_KERNELS(NAME, b1, uint8_t)                            \
  RLK_SIMT_MAP_BITS_KERNELS(NAME, b2, uint16_t)                           \
  RLK_SIMT_MAP_BITS_KERNELS(NAME, b4, uint32_t)                           \
  RLK_SIMT_MAP_BITS_KERNELS(NAME, b8, uint64_t)
#define RLK_SIMT_MAP_BITS_KERNELS(NAME, suffix, A) \
  RLK_SIMT_MAP_KERNEL(NAME, suffix, A)             \
  RLK_SIMT_MAP_LINE(NAME, suffix, A, MapOwn<A>, rlk::simt::kMapThreads)
#define RLK_SIMT_MAP_CAST(OP, outs, ins, in_views)                     \
  RLK_SIMT_MAP_FORMULA(OP, outs, ins, cast, (), RLK_SIMT_MAP_LIST ins) \
  RLK_SIMT_MAP_KERNEL(OP, f32, float)                                  \
  RLK_SIMT_MAP_KERNEL(OP, f64, double)                                 \
  RLK_SIMT_MAP_KERNEL(OP, i64, int64_t)
#define RLK_SIMT_PART(OP, NAME, outs, out_views, ins, in_views, made, ...) \
  RLK_SIMT_MAP_DEFINE(NAME, outs, ins, (RLK_SIMT_MAP_STRUCT made), __VA_ARGS__)
#define RLK_SIMT_MAPS(OP, ...)

#endif
