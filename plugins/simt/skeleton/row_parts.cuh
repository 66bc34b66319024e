// Parts of rows.cuh: names of arguments, and what is reduced.
#pragma once

#include "../element.cuh"
#include "rows.h"

namespace rlk::simt {

using formula::Lane;

enum class RowKind {
  out,
  wide_out,
  narrow_out,
  in,
  streamed,
  or_one,
  or_zero,
  of_row,
  integer_of_row,
  integers_of_row,
  id_of_row,
  list_of_row,
  ids_of_row,
  kept,
  of_column,
  of_block,
  kept_of_block,
  of_call,
  integers_of_call,
  kept_once
};

// Of a program's rows: any; such as its threads keep whole; of those, in matrices of two dimensions, such as a block of
// several waves has.
enum class RowShape { any, whole, block };

struct RowDefaults {
  static constexpr bool kCausal = false;  // row s of a block of S rows ends at column s + columns - S
  static constexpr int kSums = 0;         // over rows
};

// A matrix that is read.
constexpr __device__ __host__ bool is_read(RowKind kind) {
  return kind == RowKind::in || kind == RowKind::streamed;
}
// A number for each column, or a matrix that may be absent.
constexpr __device__ __host__ bool is_vector(RowKind kind) {
  return kind == RowKind::or_one || kind == RowKind::or_zero;
}
// A matrix that is written.
constexpr __device__ __host__ bool is_written(RowKind kind) {
  return kind == RowKind::out || kind == RowKind::wide_out || kind == RowKind::narrow_out;
}
// Matrices that are kept in registers, and vectors.
template <class Op>
constexpr __device__ __host__ int row_matrices() {
  int matrices = 0;
  for (int i = 0; i < Op::kTensors; ++i) matrices += Op::kind(i) == RowKind::in ? 1 : 0;
  return matrices;
}
template <class Op>
constexpr __device__ __host__ int row_vectors() {
  int vectors = 0;
  for (int i = 0; i < Op::kTensors; ++i) vectors += is_vector(Op::kind(i)) ? 1 : 0;
  return vectors;
}
template <class Op>
constexpr __device__ __host__ bool row_narrows() {
  bool any = false;
  for (int i = 0; i < Op::kTensors; ++i) any = any || Op::kind(i) == RowKind::narrow_out;
  return any;
}
template <class Op>
constexpr int row_held_of(int bytes) {
  return Op::kSums > 0 ? row_held_for_sums(bytes) : row_held(row_matrices<Op>(), row_vectors<Op>());
}
template <class Op>
constexpr __device__ __host__ int row_threads() {
  return Op::kSums > 0 ? kRowMostThreads : kRowThreads;
}
// Where a block's waves leave what they have of a reduction, in turns: one place for whatever a kernel reduces. With a
// place for each kind of rows and of sums, a kernel that has many would want more than the 48 KB that it may have.
constexpr int kRowMostPart = 64;  // bytes
template <int waves>
struct alignas(16) RowParts {
  unsigned char bytes[2][waves * kRowMostPart];
};
template <int waves>
__device__ __forceinline__ RowParts<waves>& row_parts_of_block() {
  __shared__ RowParts<waves> parts;
  return parts;
}
template <class State, int waves>
__device__ __forceinline__ State* row_parts(int turn) {
  static_assert(sizeof(State) <= kRowMostPart && alignof(State) <= 16, "as large as there is room for");
  return reinterpret_cast<State*>(row_parts_of_block<waves>().bytes[turn]);
}
// Blocks that a multiprocessor is to hold: those that map a row need registers for what they make of a pack, but where
// little of it is kept because one matrix streams through or what is written are the terms of a sum. Beside vectors
// row_held() is as small for few tensors as for many, and few of them leave registers for more threads, which have more
// of the memory under way.
template <class Op>
constexpr __device__ __host__ int row_blocks() {
  if (Op::kSums > 0) return 1;
  int written = 0, streamed = 0;
  for (int i = 0; i < Op::kTensors; ++i) {
    written += is_written(Op::kind(i)) && Op::kind(i) != RowKind::wide_out ? 1 : 0;
    streamed += Op::kind(i) == RowKind::streamed ? 1 : 0;
  }
  if (written == 0 || streamed == 1) return 3;
  if (row_vectors<Op>() == 0 || Op::kHoldsItself) return 2;
  const int kept = row_matrices<Op>() + row_vectors<Op>();
  return kept <= 2 ? 4 : kept == 3 ? 3 : 2;
}

// The same of those whose kernel has RowShape::block alone: their rows set up little, and wait for memory, the more so
// where vectors are read beside a pass and numbers are of 16 bits.
template <class Op, class T>
constexpr __device__ __host__ int row_blocks_of_blocks() {
  return row_vectors<Op>() > 1 && sizeof(T) == 2 ? 5 : 4;
}

template <class T>
struct RowTag {
  using type = formula::BriefLane;
};
template <>
struct RowTag<float> {
  using type = Lane<float>;
};
template <>
struct RowTag<double> {
  using type = Lane<double>;
};

// Of passes over rows that are rare: what is kept in registers is read again, and loops are short text.
struct RareLane : Lane<double> {};
struct RareFloatLane : Lane<float> {};
template <class D>
constexpr bool kIsRare = false;
template <>
inline constexpr bool kIsRare<RareLane> = true;
template <>
inline constexpr bool kIsRare<RareFloatLane> = true;

template <class A>
struct RowRare {
  using type = RareFloatLane;
};
template <>
struct RowRare<double> {
  using type = RareLane;
};

template <int index>
struct RowName {};
template <int... index>
struct RowNames {};
template <int... index>
__device__ __forceinline__ RowNames<index...> to(RowName<index>...) {
  return {};
}
template <int... index>
__device__ __forceinline__ RowNames<index...> from(RowName<index>...) {
  return {};
}

// A number of a tensor that is there, by its dtype.
__device__ __forceinline__ double row_number(const RowTensor& tensor, int64_t at) {
  if (tensor.dtype == kMapBf16) return static_cast<double>(widen(static_cast<const bf16*>(tensor.data)[at]));
  if (tensor.dtype == kMapF16) return static_cast<double>(widen(static_cast<const f16*>(tensor.data)[at]));
  if (tensor.dtype == kMapF32) return static_cast<double>(static_cast<const float*>(tensor.data)[at]);
  return static_cast<const double*>(tensor.data)[at];
}
__device__ __forceinline__ int64_t row_integer(const RowTensor& tensor, int64_t at) {
  if (tensor.dtype == kMapU8) return static_cast<const uint8_t*>(tensor.data)[at];
  if (tensor.dtype == kMapI32) return static_cast<const int32_t*>(tensor.data)[at];
  return static_cast<const int64_t*>(tensor.data)[at];
}
template <class Number>
__device__ __forceinline__ void put_row_number(const RowTensor& tensor, int64_t at, Number value) {
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

// Of a number and a NaN the number.
__device__ __forceinline__ float larger_number(float a, float b) {
  return ::fmaxf(a, b);
}
__device__ __forceinline__ double larger_number(double a, double b) {
  return ::fmax(a, b);
}

__device__ __forceinline__ bool is_finite(double x) {
  return x - x == 0;
}
__device__ __forceinline__ bool is_finite(float x) {
  return x - x == 0;
}
// A factor with which products of fp32 numbers are in range where their values are.
__device__ __forceinline__ bool fits_f32(double factor) {
  const double size = ::fabs(factor);
  return size == 0 || (size > 0x1p-100 && size < 0x1p100);
}

// kLong: terms are fp64, and so many of them that rounding each sum would be seen (Knuth's sum).
template <bool kLong>
struct RowSum {
  double sum = 0, lost = 0;

  __device__ __forceinline__ void add(double term) {
    const double next = formula::Add(sum, term);
    if constexpr (kLong) {
      const double added = next - sum;
      lost = formula::Add(lost, formula::Add(sum - (next - added), term - added));
    }
    sum = next;
  }
  __device__ __forceinline__ void add(const RowSum& other) {
    add(other.sum);
    if constexpr (kLong) lost = formula::Add(lost, other.lost);
  }
  __device__ __forceinline__ RowSum of_lane(int lanes) const {
    RowSum other;
    other.sum = wave_xor(sum, lanes);
    if constexpr (kLong) other.lost = wave_xor(lost, lanes);
    return other;
  }
  __device__ __forceinline__ double value() const { return kLong && is_finite(sum) ? sum + lost : sum; }
};

// Several of them.
template <bool kLong, int count>
struct RowSumList {
  __device__ __forceinline__ double operator[](int i) const { return of[i].value(); }

  RowSum<kLong> of[count];

  __device__ __forceinline__ void add(const RowSumList& other) {
#pragma unroll
    for (int i = 0; i < count; ++i) of[i].add(other.of[i]);
  }
  __device__ __forceinline__ RowSumList of_lane(int lanes) const {
    RowSumList other;
#pragma unroll
    for (int i = 0; i < count; ++i) other.of[i] = of[i].of_lane(lanes);
    return other;
  }
};

// A term that is a product: in a sum it takes no rounding of its own where it is added to another one.
template <class V>
struct RowProduct {
  V a, b;
};
template <class V>
__device__ __forceinline__ RowProduct<V> product(V a, V b) {
  return {a, b};
}
template <class V>
__device__ __forceinline__ V term_of(V term) {
  return term;
}
template <class V>
__device__ __forceinline__ V term_of(const RowProduct<V>& term) {
  return formula::Mul(term.a, term.b);
}
template <class V>
__device__ __forceinline__ V sum_of_terms(V a, V b) {
  return formula::Add(a, b);
}
template <class V>
__device__ __forceinline__ V sum_of_terms(const RowProduct<V>& a, const RowProduct<V>& b) {
  return formula::MulAdd(a.a, a.b, formula::Mul(b.a, b.b));
}

// A pack's terms in a tree of their type, packs in fp64.
template <bool kLong, class Term, int kSize>
__device__ __forceinline__ void add_pack_of_terms(RowSum<kLong>& total, const Term (&term)[kSize]) {
  if constexpr (kLong) {
#pragma unroll
    for (int e = 0; e < kSize; ++e) total.add(term_of(term[e]));
  } else {
    decltype(term_of(term[0])) sum[kSize / 2];
#pragma unroll
    for (int e = 0; e < kSize / 2; ++e) sum[e] = sum_of_terms(term[e], term[e + kSize / 2]);
#pragma unroll
    for (int width = kSize / 4; width > 0; width /= 2) {
#pragma unroll
      for (int e = 0; e < width; ++e) sum[e] = formula::Add(sum[e], sum[e + width]);
    }
    total.add(static_cast<double>(sum[0]));
  }
}

// A NaN is the largest.
template <class A>
struct RowLargest {
  A value;

  __device__ __forceinline__ void add(A other) { value = other > value || other != other ? other : value; }
  __device__ __forceinline__ void add(const RowLargest& other) { add(other.value); }
  __device__ __forceinline__ RowLargest of_lane(int lanes) const { return {wave_xor(value, lanes)}; }
};

// A number of a row and its column, by rank: the largest number first, a NaN before it, of equal ones the first.
template <class A>
struct RowPlace {
  A value;
  int64_t column;

  __device__ __forceinline__ bool is_before(const RowPlace& other) const {
    const bool own = value != value, its = other.value != other.value;
    if (own != its) return own;
    return own || value == other.value ? column < other.column : value > other.value;
  }
  __device__ __forceinline__ void add(const RowPlace& other) {
    if (other.is_before(*this)) *this = other;
  }
  __device__ __forceinline__ RowPlace of_lane(int lanes) const {
    return {wave_xor(value, lanes), wave_xor(column, lanes)};
  }
};

struct RowAny {
  int value;

  __device__ __forceinline__ void add(const RowAny& other) { value |= other.value; }
  __device__ __forceinline__ RowAny of_lane(int lanes) const { return {wave_xor(value, lanes)}; }
};

// Of two bf16 in 32 bits each takes one instruction.
template <class T>
__device__ __forceinline__ void unpack(const Pack<T>& pack, Accumulator<T> (&out)[Pack<T>::kSize]) {
  if constexpr (kIsBf16<T>) {
    const uint32_t words[] = {pack.bits.x, pack.bits.y, pack.bits.z, pack.bits.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      out[2 * w] = __int_as_float(static_cast<int>(words[w] << 16));
      out[2 * w + 1] = __int_as_float(static_cast<int>(words[w] & 0xffff0000u));
    }
  } else {
    pack.unpack(out);
  }
}

// What the host made of the call.
template <class Made>
__device__ __forceinline__ Made made_of(const double* numbers) {
  static_assert(sizeof(Made) <= kRowNumbers * sizeof(double), "kRowNumbers");
  Made made;
  __builtin_memcpy(&made, numbers, sizeof(made));
  return made;
}

struct RowPowers {
  double largest, sum;

  __device__ __forceinline__ double share() const { return 1 / sum; }
  __device__ __forceinline__ double log_sum() const { return ::log(sum); }
};

// Where a chunk has a sum of the pack's first column; those of the others follow, kRowPartPacks apart.
__device__ __forceinline__ int64_t row_part(int64_t pack, int size) {
  return pack / kRowPartPacks * kRowPartPacks * size + pack % kRowPartPacks;
}

template <class V>
__device__ __forceinline__ formula::Two<V> both(V first, V second) {
  return {first, second};
}
template <class V>
__device__ __forceinline__ void row_results(V value, V* out) {
  out[0] = value;
}
template <class V>
__device__ __forceinline__ void row_results(const formula::Two<V>& values, V* out) {
  out[0] = values.first;
  out[1] = values.second;
}

}  // namespace rlk::simt
