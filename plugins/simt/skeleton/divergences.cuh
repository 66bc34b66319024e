// What kl_div and tvd have in common: terms of elements, their sum over the rows that count, and gradients.
#pragma once

#include "logit_packs.cuh"
#include "rows_all.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

#include <rlk/formula/kl_div.hpp>

namespace rlk::simt {

// A row's terms and their sum. Terms have the accumulator's dtype.
template <class Row, int e, int x, int t, class F>
__device__ __forceinline__ double divergence_row(Row& row, RowName<e>, RowName<x> input, RowName<t> target,
                                                 const F& f) {
  using V = typename Row::A;
  constexpr int kSize = Row::kSize;
  using Packed = Pack<typename Row::Element>;
  RowSum<Row::kLong> total;
  each_logit_pair(row, row.source(input), row.source(target), [&](int64_t pack, const Packed& a, const Packed& b) {
    if (pack >= row.packs()) return;
    const int count = row.count_of(pack);
    V own[kSize], other[kSize], term[kSize];
    unpack(a, own);
    unpack(b, other);
    row.terms(count, V(0), term, [&](int i) { return f(Lane<V>(), own[i], other[i]); });
    row.store(e, pack, count, term);
    row.add_terms(total, term);
  });
  return row.reduce(total).value();
}
// The slopes of an element times the gradient that it has from the loss and from itself.
template <class D, class V>
__device__ __forceinline__ formula::Two<V> divergence_gradients(D d, const formula::Two<V>& slopes, double of_loss,
                                                                V of_element) {
  const V of_term = formula::Add(of_element, formula::number(d, of_loss));
  return {formula::Mul(slopes.first, of_term), formula::Mul(slopes.second, of_term)};
}

// The slopes of the elements of a row.
template <class Row, int g, int h, int x, int t, int z, class F>
__device__ __forceinline__ void put_divergence_slopes(Row& row, RowName<g>, RowName<h>, RowName<x> input,
                                                      RowName<t> target, RowName<z>, double of_loss, const F& slopes) {
  using V = typename Row::A;
  constexpr int kSize = Row::kSize;
  using Packed = Pack<typename Row::Element>;
  const typename Row::Tag d{};
  each_logit_pair(row, row.source(input), row.source(target), [&](int64_t pack, const Packed& a, const Packed& b) {
    if (pack >= row.packs()) return;
    V own[kSize], other[kSize], of_element[kSize];
    unpack(a, own);
    unpack(b, other);
    row.template read<V, z>(typename Row::template Is<false>(), 0, pack, of_element);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const formula::Two<V> of = divergence_gradients(d, slopes(d, own[i], other[i]), of_loss, of_element[i]);
      own[i] = of.first;
      other[i] = of.second;
    }
    row.store(g, pack, row.count_of(pack), own);
    row.store(h, pack, row.count_of(pack), other);
  });
}
template <int m>
__device__ __forceinline__ double kept_rows(const AllRows& all, RowName<m> mask) {
  if (!all.has(mask)) return static_cast<double>(all.rows());
  const auto kept =
      all.sums<1>(all.rows(), [&](int64_t n, double(&term)[1]) { term[0] = all.integer(mask, n, 1) != 0 ? 1 : 0; });
  return kept.value[0];
}
template <int m>
__device__ __forceinline__ double factor_of_sum(const AllRows& all, const formula::DivergenceTerms& terms,
                                                RowName<m> mask) {
  return formula::reduction_factor(terms, kept_rows(all, mask), static_cast<double>(all.columns()));
}
template <int m, int s>
__device__ __forceinline__ double reduced_divergence(const AllRows& all, const formula::DivergenceTerms& terms,
                                                     RowName<m> mask, RowName<s> sum_of_row) {
  const double factor = factor_of_sum(all, terms, mask);
  if (factor == 0) return 0;
  const auto sum = all.sums<1>(all.rows(), [&](int64_t n, double(&term)[1]) { term[0] = all.get(sum_of_row, n); });
  return sum.value[0] * factor;
}

}  // namespace rlk::simt

#endif
