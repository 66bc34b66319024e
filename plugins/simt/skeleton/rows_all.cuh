// Operators of rows with something of all rows: a reduced loss, which follows from a number of each row, or the divisor
// of a mean, which the gradient of each row needs.
//
//   RLK_SIMT_ROWS_THEN_ALL(OP, arguments, (Terms, terms, terms_of(call.params)),
//                          ({ all.put(loss, all.sums<1>([&](auto n) { return ...; })...); }), { ... })
//   RLK_SIMT_ALL_THEN_ROWS(the same)
//   RLK_SIMT_ROWS_BETWEEN(OP, arguments, (Terms, terms, ...), ({ before }), ({ after }), { ... })
//   RLK_SIMT_ROWS_BY(OP, arguments, (Terms, terms, ...), { ... })   without such a text
//
// A second kernel of one block does the first text before or after the rows. All texts have `terms`, which the host
// makes of the call. Besides the arguments of rows.cuh there are
//
//   wide_out(element_loss)         a matrix of the accumulator's dtype that is written; may be absent
//   of_block(rewards)              a number for each block of rows; may be absent
//   of_call(loss)                  one number of the call; may be absent
//   integers_of_call(boundaries)   whole numbers of the call
//   kept(ce), kept_of_block(a), kept_once(by)   a number for each row or block of rows, or kRowKeptOnce of the call,
//                                  that one kernel leaves the other
//
// The rows' text begins with row.hold() where the row is wanted: a masked row is not read. In what is done of all rows
//
//   all.sums<k>(count, f)          k sums of f(i, terms) over i < count, each in the order that count alone decides
//   all.kept(ce, n)                what is kept of row n, with no question before it is read
//   all.get(ce, n)                 all.integer(ids, n, absent), all.put(loss, value), all.put(by, value, place)
//   all.of_block(rewards, b)       all.put_of_block(a, b, value) by the thread that comes there
//
// map_and_sum(row, d, to(...), from(...), f) is row.map with one result, and the sum of it.
#pragma once

#include "rows.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

#include "seqlens.cuh"

namespace rlk::simt {

template <int count>
struct AllSums {
  double value[count];
};

class AllRows {
public:
  __device__ __forceinline__ explicit AllRows(const RowArgs& args) : args_(args) {}

  __device__ __forceinline__ int64_t rows() const { return args_.rows; }
  __device__ __forceinline__ int64_t columns() const { return args_.columns; }
  __device__ __forceinline__ int64_t blocks() const { return args_.blocks; }

  // Numbers of row n; `of_call` is the same for all.
  template <int i>
  __device__ __forceinline__ double get(RowName<i>, int64_t n, int64_t column = 0, double absent = 0) const {
    const RowTensor& tensor = args_.tensor[i];
    return tensor.data == nullptr ? absent : row_number(tensor, at(tensor, n) + column * tensor.column);
  }
  template <int i>
  __device__ __forceinline__ int64_t integer(RowName<i>, int64_t n, int64_t absent) const {
    const RowTensor& tensor = args_.tensor[i];
    return tensor.data == nullptr ? absent : row_integer(tensor, at(tensor, n));
  }
  // What the rows' text has kept of row n; a sum does not read the tensor again.
  template <int i>
  __device__ __forceinline__ double kept(RowName<i>, int64_t n) const {
    return static_cast<const double*>(args_.tensor[i].data)[n];
  }
  template <int i>
  __device__ __forceinline__ bool has(RowName<i>) const {
    return args_.tensor[i].data != nullptr;
  }
  template <int i>
  __device__ __forceinline__ void put(RowName<i>, double value, int place = 0) const {
    const RowTensor& tensor = args_.tensor[i];
    if (threadIdx.x == 0 && tensor.data != nullptr) put_row_number(tensor, place * tensor.column, value);
  }

  template <int i>
  __device__ __forceinline__ double of_block(RowName<i>, int64_t b) const {
    const RowTensor& tensor = args_.tensor[i];
    return row_number(tensor, b * tensor.outer);
  }
  template <int i>
  __device__ __forceinline__ void put_of_block(RowName<i>, int64_t b, double value) const {
    const RowTensor& tensor = args_.tensor[i];
    if (tensor.data != nullptr) put_row_number(tensor, b * tensor.outer, value);
  }
  template <int i>
  __device__ __forceinline__ int64_t integer_of_call(RowName<i>, int64_t j) const {
    const RowTensor& tensor = args_.tensor[i];
    return row_integer(tensor, j * tensor.column);
  }
  // Whether so many parts of `total` begin where these say; else the data error is told.
  template <int i>
  __device__ __forceinline__ bool are_sound(RowName<i>, int64_t parts, int64_t total) const {
    const RowTensor& tensor = args_.tensor[i];
    const Seqlens of = {tensor.data, tensor.column, parts, total, tensor.dtype == kMapI32 ? 0 : 1, 0, args_.errors};
    return check_seqlens<kRowAllThreads>(of, true) < 0;
  }

  // Where numbers are fp32 or less, fp64 has digits to spare for their sums.
  template <int count, class F>
  __device__ __forceinline__ AllSums<count> sums(int64_t terms, const F& f) const {
    return args_.dtype == kMapF64 ? sums_of<true, count>(terms, f) : sums_of<false, count>(terms, f);
  }

private:
  template <bool kLong, int count, class F>
  __device__ __forceinline__ AllSums<count> sums_of(int64_t terms, const F& f) const {
    constexpr int kWaves = kRowAllThreads / kWave, kAtOnce = 4;
    static_assert(count <= kWaves && kWaves <= kWave, "a wave for each sum, a lane for each wave");
    const int wave = static_cast<int>(threadIdx.x) / kWave, lane = static_cast<int>(threadIdx.x) % kWave;
    RowSum<kLong> total[count];
#pragma unroll 1
    for (int64_t first = threadIdx.x; first < terms; first += kAtOnce * kRowAllThreads) {
      double term[kAtOnce][count] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kRowAllThreads < terms) f(first + i * kRowAllThreads, term[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int k = 0; k < count; ++k) total[k].add(term[i][k]);
      }
    }
    __shared__ double part[count][kWaves], lost[count][kWaves];
#pragma unroll
    for (int k = 0; k < count; ++k) {
#pragma unroll
      for (int lanes = kWave / 2; lanes > 0; lanes /= 2) total[k].add(total[k].of_lane(lanes));
      if (lane == 0) {
        part[k][wave] = total[k].sum;
        lost[k][wave] = total[k].lost;
      }
    }
    __syncthreads();
    if (wave < count) {
      RowSum<kLong> all;
      if (lane < kWaves) {
        all.sum = part[wave][lane];
        all.lost = lost[wave][lane];
      }
#pragma unroll
      for (int lanes = kWaves / 2; lanes > 0; lanes /= 2) all.add(all.of_lane(lanes));
      if (lane == 0) part[wave][0] = all.value();
    }
    __syncthreads();
    AllSums<count> out;
#pragma unroll
    for (int k = 0; k < count; ++k) out.value[k] = part[k][0];
    __syncthreads();  // before the next sums write
    return out;
  }
  __device__ __forceinline__ int64_t at(const RowTensor& tensor, int64_t n) const {
    const int64_t block = n < args_.inner ? 0 : n / args_.inner;
    return block * tensor.outer + (n - block * args_.inner) * tensor.row;
  }

  const RowArgs& args_;
};

template <class Op>
__device__ __forceinline__ void rows_all(const RowArgs& args) {
  if (blockIdx.x == 0) Op::apply_to_all(AllRows(args), args.number);
}
template <class Op>
__device__ __forceinline__ void rows_first(const RowArgs& args) {
  if (blockIdx.x == 0) Op::apply_first(AllRows(args), args.number);
}

template <class D, class Row, int out, int... in, class F>
__device__ __forceinline__ double map_and_sum(D d, Row& row, RowNames<out>, RowNames<in...> names, const F& f) {
  using V = formula::TFromD<D>;
  constexpr int kSize = Row::kSize;
  RowSum<Row::kLong> total;
  row.template each<D>(names, [&](auto, int64_t pack, int count, auto& x) {
    V y[kSize];
    row.terms(count, V(0), y, [&](int e) { return f(d, x[in][e]...); });
    row.store(out, pack, count, y);
    row.add_terms(total, y);
  });
  return row.reduce(total).value();
}

}  // namespace rlk::simt

#define RLK_SIMT_ROWS_ALL_TEXT(function, arguments, made, text)                                         \
  static __device__ __forceinline__ void function(const simt::AllRows& all, const double* rlk_number) { \
    RLK_SIMT_EACH(RLK_SIMT_ROWS_NAME, RLK_SIMT_ROWS_LIST arguments)                                     \
    RLK_SIMT_ROWS_MADE_OF made RLK_SIMT_ROWS_LIST text                                                  \
  }
#define RLK_SIMT_ROWS_ALL_MEMBER(arguments, made, text) (RLK_SIMT_ROWS_ALL_TEXT(apply_to_all, arguments, made, text))
#define RLK_SIMT_ROWS_BOTH_MEMBERS(arguments, made, before, after) \
  (RLK_SIMT_ROWS_ALL_TEXT(apply_first, arguments, made, before)    \
       RLK_SIMT_ROWS_ALL_TEXT(apply_to_all, arguments, made, after))
#define RLK_SIMT_ROWS_ALL_KERNEL(OP, suffix, function)                                              \
  RLK_SIMT_KERNEL(rlk::simt::kRowAllThreads)                                                        \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _rows_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::RowArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                  \
    rlk::simt::function<rlk::formula::OP##Rows>(args);                                              \
  }
#define RLK_SIMT_ROWS_THEN_ALL(OP, arguments, made, text, ...)                       \
  RLK_SIMT_ROWS_DEFINE(OP, arguments, (RLK_SIMT_ROWS_MADE_OF made), true,            \
                       RLK_SIMT_ROWS_ALL_MEMBER(arguments, made, text), __VA_ARGS__) \
  RLK_SIMT_ROWS_ALL_KERNEL(OP, all, rows_all)
#define RLK_SIMT_ALL_THEN_ROWS RLK_SIMT_ROWS_THEN_ALL
#define RLK_SIMT_ROWS_BETWEEN(OP, arguments, made, before, after, ...)                          \
  RLK_SIMT_ROWS_DEFINE(OP, arguments, (RLK_SIMT_ROWS_MADE_OF made), true,                       \
                       RLK_SIMT_ROWS_BOTH_MEMBERS(arguments, made, before, after), __VA_ARGS__) \
  RLK_SIMT_ROWS_ALL_KERNEL(OP, first, rows_first)                                               \
  RLK_SIMT_ROWS_ALL_KERNEL(OP, all, rows_all)

#endif
