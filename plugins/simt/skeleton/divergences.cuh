// What kl_div and tvd have in common: terms of elements, their sum over the rows that count, and gradients.
#pragma once

#include "rows_all.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

#include <rlk/formula/kl_div.hpp>

namespace rlk::simt {

// A row's terms and their sum. Terms have the accumulator's dtype.
template <class Row, int e, int x, int t, class F>
__device__ __forceinline__ double divergence_row(Row& row, bool is_kept, RowName<e> element_loss, RowName<x> input,
                                                 RowName<t> target, const F& f) {
  if (!is_kept) {
    row.fill(to(element_loss), 0);
    return 0;
  }
  row.hold();
  return map_and_sum(Lane<typename Row::A>(), row, to(element_loss), from(input, target), f);
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

// The slopes of an element times the gradient that it has from the loss and from itself.
template <class D, class V>
__device__ __forceinline__ formula::Two<V> divergence_gradients(D d, const formula::Two<V>& slopes, double of_loss,
                                                                V of_element) {
  const V of_term = formula::Add(of_element, formula::number(d, of_loss));
  return {formula::Mul(slopes.first, of_term), formula::Mul(slopes.second, of_term)};
}

}  // namespace rlk::simt

#endif
