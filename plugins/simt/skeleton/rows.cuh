// rows: a row of a matrix is reduced, in one pass or several, and mapped.
//
//   RLK_SIMT_ROWS(Softmax, (out(y), in(x)), {
//     const RowPowers p = row.powers(d, from(x));
//     row.map(d, to(y), from(x), [=](auto d, auto v) { return softmax_of(d, v, p.largest, p.share()); });
//   })
// The operator's name in the declarations' views, its arguments by their names there, and what is done with a row;
// RLK_SIMT_ROWS_WITH(OP, arguments, (eps), ...) names parameters, which are doubles. An argument is
//   out(y), in(x)                  a matrix of the operator's dtype; out may be absent
//   narrow_out(grad_logits)        as out; rows of fp32 may be written as bf16
//   streamed(logits)               one of which nothing is kept in registers (logits.cuh); may be absent
//   or_one(weight), or_zero(bias)  a matrix or a number for each column, and what stands for it where it is absent;
//                                  the operator's dtype or its accumulator
//   of_row(rstd)                   a number for each row that is put; may be absent
//   id_of_row(index)               an integer for each row, of either width
//   list_of_row(weights), ids_of_row(ids)   several of them for each row
//   integer_of_row(ids), integers_of_row(ids)   the same, but read: int32, int64 or u8; may be absent
//   kept(rstd), of_column(grad)    of sums over rows (row_sums.cuh): a number for each row that is put in memory of the
//                                  call, and a sum
// In what is done, d is a Lane of the dtype's accumulator and Lane<double> is as good: passes compute in its type.
//
//   row.sum(d, from(...), f)       the sum of f(d, ...) over the columns, in fp64, for fp64 itself compensated
//   row.sums(d, from(...), f, g)   two of them in one pass, or three
//   row.largest(d, from(...), f)   a NaN is the largest
//   row.first_place(d, from(x))    which number of x comes first by rank (RowPlace), and where it stands;
//   row.next_place(d, from(x), p)  which one after p
//   row.powers(d, from(x))         the largest number and the sum of exp(x - largest) in one pass
//   row.map(d, to(...), from(...), f)
//   row.fit_or(is_fit, value, f)   `value`, or where it is not fit for a row f(row), which is rare and may reduce
//   row.put(rstd, value)  row.put_id(index, column)   and the same with j for number j of a list
//   row.get(x, column), row.columns(); rows_all.cuh has more
//
// Some lanes of a wave have a short row, a wave one that its lanes can hold, a block a longer one. Thread t takes packs
// t, t + threads, ... of 16 bytes: of each `in` it keeps the first row_held(), and reads the others again in each pass.
// Vectors that are in packs of the same dtype are kept too. In what order a row is summed depends on its columns and
// its dtype alone: not on other rows, on the grid, or on strides and addresses.
#pragma once

#if !defined(RLK_SIMT_ROWS)  // the host reads operators too, with words of its own (host/row_words.hpp)
#define RLK_SIMT_ROWS_ON_DEVICE

#include "row_packs.cuh"

namespace rlk::simt {

template <class Op, class T, bool kPacks, bool kVectors = false, RowShape kShape = RowShape::any>
class Row : public RowPacks<Op, T, kPacks, kVectors, kShape> {
  using Packs = RowPacks<Op, T, kPacks, kVectors, kShape>;

protected:
  using Packs::args_, Packs::n_, Packs::packs_, Packs::place_, Packs::seen_packs_;

public:
  using Packs::at, Packs::store, Packs::count_of;
  using Packs::kLong, Packs::kHalf, Packs::kSize;
  using Packs::Packs;
  using A = Accumulator<T>;
  // What is rarely done is short text in the accumulator.
  using Rare = typename RowRare<A>::type;
  // What is computed in where rows are of numbers of 16 bits is the least that serves their results.
  using Tag = typename RowTag<T>::type;

  // From a sum over the columns. For fp64 the last bit of the reciprocal counts.
  __device__ __forceinline__ double mean_of(double sum) const {
    return kLong ? sum / static_cast<double>(args_.columns) : sum * args_.share;
  }
  // A number near most of the row's, the same in each of its threads: the mean of its first few.
  template <int in>
  __device__ __forceinline__ double pivot(RowNames<in>) const {
    A number[kSize];
    Packs::template read_as<A, T>(in, 0, number);
#pragma unroll
    for (int width = kSize / 2; width > 0; width /= 2) {
#pragma unroll
      for (int e = 0; e < width; ++e) number[e] = formula::Add(number[e], number[e + width]);
    }
    return static_cast<double>(number[0] * (A(1) / kSize));
  }
  template <class D, int... in, class F>
  __device__ __forceinline__ double sum(D d, RowNames<in...> names, const F& f) {
    using V = formula::TFromD<D>;
    RowSum<kLong> total;
    Packs::template each<D>(names, [&](auto, int64_t, int count, auto& x) {
      using Term = decltype(f(d, ((void)in, V())...));
      Term term[kSize];
      terms(count, Term{}, term, [&](int e) { return f(d, x[in][e]...); });
      add_terms(total, term);
    });
    return reduce(total).value();
  }
  template <class D, int... in, class F, class G>
  __device__ __forceinline__ formula::Two<double> sums(D d, RowNames<in...> names, const F& f, const G& g) {
    const auto all = sum_list(d, names, f, g);
    return {all.of[0].value(), all.of[1].value()};
  }
  template <class D, int... in, class F, class G, class H>
  __device__ __forceinline__ formula::Three<double> sums(D d, RowNames<in...> names, const F& f, const G& g,
                                                         const H& h) {
    const auto all = sum_list(d, names, f, g, h);
    return {all.of[0].value(), all.of[1].value(), all.of[2].value()};
  }
  // Any number of them, by their places.
  template <class D, int... in, class... F>
  __device__ __forceinline__ RowSumList<kLong, sizeof...(F)> sums_of(D d, RowNames<in...> names, const F&... f) {
    return sum_list(d, names, f...);
  }
  template <class D, int... in, class F>
  __device__ __forceinline__ formula::TFromD<D> largest(D d, RowNames<in...> names, const F& f) {
    using V = formula::TFromD<D>;
    RowLargest<V> most{-V(INFINITY)};
    Packs::template each<D>(names, [&](auto, int64_t, int count, auto& x) {
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        if (e < count) most.add(f(d, x[in][e]...));
      }
    });
    return reduce(most).value;
  }
  template <class D, int in>
  __device__ __forceinline__ RowPlace<formula::TFromD<D>> first_place(D, RowNames<in> names) {
    using V = formula::TFromD<D>;
    // A thread's columns rise: what comes later must be more.
    RowPlace<V> best{-V(INFINITY), place_ < seen_packs_ ? place_ * kSize : INT64_MAX};
    Packs::template each<D>(names, [&](auto, int64_t pack, int count, auto& x) {
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        const V v = x[in][e];
        if (e < count && (v > best.value || (v != v && best.value == best.value))) best = {v, pack * kSize + e};
      }
    });
    return reduce(best);
  }
  template <class D, int in>
  __device__ __forceinline__ auto next_place(D, RowNames<in> names, const RowPlace<formula::TFromD<D>>& last) {
    using V = formula::TFromD<D>;
    RowPlace<V> best{-V(INFINITY), INT64_MAX};
    Packs::template each<D>(names, [&](auto, int64_t pack, int count, auto& x) {
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        const RowPlace<V> own{x[in][e], pack * kSize + e};
        if (e < count && last.is_before(own)) best.add(own);
      }
    });
    return reduce(best);
  }
  // Of what is held the largest number is found first: the row's, where all of the row is held. Later packs may have a
  // larger one: then the sum so far is scaled, which fp64 does without a loss that could be seen.
  template <class D, int in>
  __device__ __forceinline__ RowPowers powers(D d, RowNames<in> names) {
    return powers(d, names, [](auto, auto x) { return x; });
  }
  template <class D, int in, class F>
  __device__ __forceinline__ RowPowers powers(D d, RowNames<in> names, const F& score) {
    using V = formula::TFromD<D>;
    RowLargest<V> most{-V(INFINITY)};
    RowSum<kLong> total;
    const auto largest_of = [&](int count, auto& x) {
      V top = -V(INFINITY);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        const V s = score(d, x[in][e]);
        if (e < count) top = larger_number(s, top);
      }
      return top;
    };
    bool is_held = false;  // the same for all rows, which reduce together
    if constexpr (!kIsRare<D>) {
      is_held = kShape == RowShape::block || packs_ <= static_cast<int64_t>(Packs::kHeld) * args_.group;
      Packs::template first<V>(names, [&](auto, int64_t, int count, auto& x) { most.add(largest_of(count, x)); });
      if (is_held) most = reduce(most);
    }
    Packs::template each<D>(names, [&](auto is_first, int64_t, int count, auto& x) {
      if constexpr (!is_first.value) {
        const V top = largest_of(count, x);
        if (top > most.value) {
          scale(total, most.value, top);
          most.value = top;
        }
      }
      const V shift = most.value == -V(INFINITY) ? V(0) : most.value;
      V term[kSize];
      terms(count, V(0), term, [&](int e) { return exp(d, formula::Sub(score(d, x[in][e]), shift)); });
      add_terms(total, term);
    });
    if (is_held) return {static_cast<double>(most.value), reduce(total).value()};
    const V largest = reduce(most).value;
    scale(total, most.value, largest);
    return {static_cast<double>(largest), reduce(total).value()};
  }

  template <class D, int... out, int... in, class F>
  __device__ __forceinline__ void map(D d, RowNames<out...>, RowNames<in...> names, const F& f) {
    using V = formula::TFromD<D>;
    constexpr int kOut = sizeof...(out);
    if (kOnce && is_unfit_) return;  // of what is read nothing may be lost
    Packs::template each<D>(names, [&](auto, int64_t pack, int count, auto& x) {
      V y[kOut][kSize];
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        V results[kOut];
        row_results<V>(f(d, x[in][e]...), results);
#pragma unroll
        for (int k = 0; k < kOut; ++k) y[k][e] = results[k];
      }
      int k = 0;
      (store(out, pack, count, y[k++]), ...);
    });
    if constexpr (Op::kCausal) {
      const V nothing[kSize] = {};
      const int64_t turns = seen_packs_ > place_ ? (seen_packs_ - place_ + args_.group - 1) / args_.group : 0;
#pragma unroll 1
      for (int64_t pack = place_ + turns * args_.group; pack < packs_; pack += args_.group) {
        (store(out, pack, 0, nothing), ...);
      }
    }
  }
  // f(d, whether it is the element of that column, ...), which is not asked about what is beyond the row: where `out`
  // is what is read, that may be written already.
  template <class D, int out, int... in, class F>
  __device__ __forceinline__ void map_but(int64_t column, D d, RowNames<out>, RowNames<in...> names, const F& f) {
    using V = formula::TFromD<D>;
    const int64_t its_pack = column / kSize;
    const int its_place = static_cast<int>(column - its_pack * kSize);
    Packs::template each<D>(names, [&](auto, int64_t pack, int count, auto& x) {
      const int place = pack == its_pack ? its_place : -1;
      V y[kSize];
#pragma unroll
      for (int e = 0; e < kSize; ++e) y[e] = e < count ? f(d, e == place, x[in][e]...) : V(0);
      store(out, pack, count, y);
    });
  }
  template <int... out>
  __device__ __forceinline__ void fill(RowNames<out...>, A value) const {
    A y[kSize];
#pragma unroll
    for (int e = 0; e < kSize; ++e) y[e] = value;
#pragma unroll 1
    for (int64_t pack = place_; pack < packs_; pack += args_.group) {
      (store(out, pack, count_of(pack), y), ...);
    }
  }
  // In the accumulator where that is enough for this row, else in fp64.
  template <int... out, int... in, class F>
  __device__ __forceinline__ void map_within(bool is_within, RowNames<out...> to, RowNames<in...> from, const F& f) {
    if (kOnce || kLong || is_within) {
      if constexpr (kOnce) is_unfit_ = is_unfit_ || !is_within;
      map(Tag(), to, from, f);
    } else {
      apart(args_, n_, [=](auto& row) { return row.map(RareLane(), to, from, f); });
    }
  }
  // Where one row of a wave is not fit, all of them reduce, and each takes what it would take alone.
  __device__ __forceinline__ bool are_fit(bool is_fit) const {
    return kShape != RowShape::block && args_.group < kWave ? wave_ballot(!is_fit) == 0 : is_fit;
  }
  // `value`, or where it is not fit for a row f(row), for which the row is still held.
  template <class V, class F>
  __device__ __forceinline__ V value_or(bool is_fit, const V& value, const F& f) {
    if (are_fit(is_fit)) return value;
    const V other = f(*this);
    return is_fit ? value : other;
  }
  // In a function of its own, f takes no registers from what is done with most rows.
  template <class V, class F>
  __device__ __forceinline__ V fit_or(bool is_fit, const V& value, const F& f) {
    if constexpr (kOnce) {
      is_unfit_ = is_unfit_ || !is_fit;
      return value;
    }
    if (are_fit(is_fit)) return value;
    wait();
    const V rare = apart(args_, n_, f);
    wait();
    this->hold();  // again: else the compiler keeps it in memory, for the sake of a call, from the first load on
    return is_fit ? value : rare;
  }
  // What is done in fp64, but where a row's numbers allow it in fp32: calls f with what to compute in.
  template <class F>
  __device__ __forceinline__ void wide_unless(bool is_within, const F& f) {
    if constexpr (kLong) {
      f(Lane<double>());
    } else {
      is_within ? f(Lane<float>()) : f(RareLane());
    }
  }
  template <int i, class Number>
  __device__ __forceinline__ void put(RowName<i>, Number value, int64_t j = 0) const {
    const RowTensor& tensor = args_.tensor[i];
    if (place_ == 0 && tensor.data != nullptr) put_row_number(tensor, at(i) + j * tensor.column, value);
  }
  template <int i>
  __device__ __forceinline__ void put_id(RowName<i>, int64_t id, int64_t j = 0) const {
    const RowTensor& tensor = args_.tensor[i];
    if (place_ != 0 || tensor.data == nullptr) return;
    const int64_t place = at(i) + j * tensor.column;
    if (tensor.dtype == kMapI32) {
      static_cast<int32_t*>(tensor.data)[place] = static_cast<int32_t>(id);
    } else {
      static_cast<int64_t*>(tensor.data)[place] = id;
    }
  }
  // The same in each thread of the row: a number of the row, of a column of it, of the call; a whole one.
  template <int i>
  __device__ __forceinline__ double get(RowName<i>, int64_t column = 0, double absent = 0) const {
    const RowTensor& tensor = args_.tensor[i];
    return tensor.data == nullptr ? absent : row_number(tensor, at(i) + column * tensor.column);
  }
  template <int i>
  __device__ __forceinline__ int64_t integer(RowName<i>, int64_t absent, int64_t j = 0) const {
    const RowTensor& tensor = args_.tensor[i];
    return tensor.data == nullptr ? absent : row_integer(tensor, at(i) + j * tensor.column);
  }
  // By the thread that comes here.
  template <int i>
  __device__ __forceinline__ void set(RowName<i>, int64_t column, double value) const {
    const RowTensor& tensor = args_.tensor[i];
    put_row_number(tensor, at(i) + column * tensor.column, value);
  }
  // Sums over numbers of a list, each of them one thread's: of f(j), and what f does besides; of what f(j, terms) puts
  // into its terms.
  template <class F>
  __device__ __forceinline__ double sum_of_list(int64_t count, const F& f) {
    RowSum<true> total;
#pragma unroll 1
    for (int64_t j = place_; j < count; j += args_.group) total.add(f(j));
    return reduce(total).value();
  }
  template <int terms, class F>
  __device__ __forceinline__ RowSumList<true, terms> sums_of_list(int64_t count, const F& f) {
    RowSumList<true, terms> total;
#pragma unroll 1
    for (int64_t j = place_; j < count; j += args_.group) {
      double term[terms];
      f(j, term);
#pragma unroll
      for (int k = 0; k < terms; ++k) total.of[k].add(term[k]);
    }
    return reduce(total);
  }
  template <int i>
  __device__ __forceinline__ bool has(RowName<i>) const {
    return args_.tensor[i].data != nullptr;
  }
  __device__ __forceinline__ void report(int32_t kind, int64_t value) const {
    if (place_ == 0) report_data_error(args_.errors, kind, n_, value);
  }
  __device__ __forceinline__ bool any(bool mine) {
    return reduce(RowAny{mine ? 1 : 0}).value != 0;
  }
  // What its threads have read, they may write after this.
  __device__ __forceinline__ void wait() const {
    args_.group <= kWave ? wave_sync() : __syncthreads();
  }

  template <class V, class F>
  __device__ __forceinline__ void terms(int count, V neutral, V (&out)[kSize], const F& f) const {
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      const V term = f(e);
      out[e] = e < count ? term : neutral;
    }
  }
  // Of a row that is not done again.
  __device__ __forceinline__ void redo() {
    if (!kOnce || !is_unfit_) return;
    is_unfit_ = false;
    do_again(args_, n_);
  }
  template <class Term>
  __device__ __forceinline__ void add_terms(RowSum<kLong>& total, const Term (&term)[kSize]) const {
    add_pack_of_terms(total, term);
  }
  // From powers of x - old to those of x - top.
  template <class V>
  __device__ __forceinline__ void scale(RowSum<kLong>& total, V old, V top) const {
    if (old == top || total.sum == 0) return;
    const double factor = ::exp(static_cast<double>(old) - static_cast<double>(top));
    total.sum *= factor;
    total.lost *= factor;
  }

  // Of the threads of the row, the same in each of them. One barrier each: what the one before wrote is read until the
  // next but one writes.
  template <class State>
  __device__ __forceinline__ State reduce(State mine) {
    if (kShape != RowShape::block && args_.group < kWave) {
#pragma unroll
      for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
        if (lanes < args_.group) mine.add(mine.of_lane(lanes));
      }
      return mine;
    }
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) mine.add(mine.of_lane(lanes));
    if (kShape != RowShape::block && args_.group == kWave) return mine;
    constexpr int kWaves = row_threads<Op>() / kRowSmallestWave;
    State* const part = row_parts<State, kWaves>(turn_);
    const int wave = static_cast<int>(threadIdx.x) / kWave, waves = args_.group / kWave;
    const int lane = static_cast<int>(threadIdx.x) % kWave;
    if (lane == 0) __builtin_memcpy(static_cast<void*>(part + wave), &mine, sizeof(State));
    __syncthreads();
    __builtin_memcpy(static_cast<void*>(&mine), part + (lane & (waves - 1)), sizeof(State));
#pragma unroll
    for (int lanes = kWaves / 2; lanes > 0; lanes /= 2) {
      if (lanes < waves) mine.add(mine.of_lane(lanes));
    }
    turn_ ^= 1;
    return mine;
  }

private:
  // Each f's terms are of the type that it makes of d's numbers.
  template <class D, int... in, class... F>
  __device__ __forceinline__ auto sum_list(D d, RowNames<in...> names, const F&... f) {
    using V = formula::TFromD<D>;
    RowSumList<kLong, sizeof...(F)> total;
    Packs::template each<D>(names, [&](auto, int64_t, int count, auto& x) {
      int k = 0;
      const auto add = [&](const auto& own) {
        using Term = decltype(own(d, ((void)in, V())...));
        Term term[kSize];
        terms(count, Term{}, term, [&](int e) { return own(d, x[in][e]...); });
        add_terms(total.of[k++], term);
      };
      (add(f), ...);
    });
    if constexpr (!kLong) {
      if (kShape == RowShape::block || args_.group > kWave) return reduce_list(total);
    }
    return reduce(total);
  }
  // Of the threads of a block. Lanes that have exchanged sums go on with one of them each.
  template <int count>
  __device__ __forceinline__ RowSumList<false, count> reduce_list(const RowSumList<false, count>& mine) {
    constexpr int kOf = count <= 2 ? 2 : 4, kLanes = kWave / kOf, kWaves = row_threads<Op>() / kRowSmallestWave;
    static_assert(count <= kOf);
    struct Sums {
      double of[kOf];
    };
    Sums* const part = row_parts<Sums, kWaves>(turn_);
    const int lane = static_cast<int>(threadIdx.x) % kWave, wave = static_cast<int>(threadIdx.x) / kWave;
    double own[kOf] = {};
#pragma unroll
    for (int k = 0; k < count; ++k) own[k] = mine.of[k].sum;
#pragma unroll
    for (int width = kOf / 2, lanes = kWave / 2; width > 0; width /= 2, lanes /= 2) {
      const bool is_upper = (lane & lanes) != 0;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const double its = is_upper ? own[k] : own[k + width];
        own[k] = formula::Add(is_upper ? own[k + width] : own[k], wave_xor(its, lanes));
      }
    }
    double sum = own[0];
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) sum = formula::Add(sum, wave_xor(sum, lanes));
    if (lane % kLanes == 0) part[wave].of[lane / kLanes] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int w = lane % kLanes, i = 0; i < kWaves; w += kLanes, i += kLanes) {
      if (w < args_.group / kWave) sum = formula::Add(sum, part[w].of[lane / kLanes]);
    }
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) sum = formula::Add(sum, wave_xor(sum, lanes));
    turn_ ^= 1;
    RowSumList<false, count> all;
#pragma unroll
    for (int k = 0; k < count; ++k) all.of[k].sum = wave_read(sum, k * kLanes);
    return all;
  }
  // f(row n), of which nothing is kept in registers.
  template <class F>
  static RLK_SIMT_APART auto apart(const RowArgs& args, int64_t n, F f) {
    Row row(args);
    row.wait();  // other waves may still read the last reduction
    row.seek(n);
    return f(row);
  }

  // A row of a block is done to its end with what most rows are fit for, but for what it writes, and where it is not
  // fit all of it is done again: a call on the way would cost all others registers.
  static constexpr bool kOnce = kShape == RowShape::block && Op::kSums == 0;
  static RLK_SIMT_APART void do_again(const RowArgs& args, int64_t n) {
    Row<Op, T, false> row(args);
    row.wait();
    row.begin(n);
    Op::apply(row, args.number);
  }

  bool is_unfit_ = false;
  int turn_ = 0;
};

}  // namespace rlk::simt

#include "row_kernels.cuh"
#include "row_macros.cuh"

#endif
