// Terms of sums over rows. A part of row_sums.cuh.
#pragma once

#include "rows.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

namespace rlk::simt {

// Of a kept number: a number of its row, times it or less it, loses nothing in fp32 that could be seen.
__device__ __forceinline__ bool fits_terms(double kept) {
  const float size = formula::Abs(static_cast<float>(kept));
  return (size > 0x1p-100f && size < 0x1p45f) || kept == 0;
}
// sum + term, rounded once.
template <class V>
__device__ __forceinline__ V add_term(V sum, V term) {
  return formula::Add(sum, term);
}
template <class V>
__device__ __forceinline__ V add_term(V sum, const RowProduct<V>& term) {
  return formula::MulAdd(term.a, term.b, sum);
}
// Calls take(k, its k-th term).
template <class Take, class... Term>
__device__ __forceinline__ void take_terms(const Take& take, const Term&... term) {
  int k = 0;
  (take(k++, term), ...);
}

// What make(sums) makes of the sums of f(d, ...) over a row, the same in all of its threads. Rows of a block have a way
// of their own (summed_rows.cuh).
template <class Op, class T, bool kPacks, bool kVectors, RowShape kShape, class D, class Names, class Make, class... F>
__device__ __forceinline__ auto made_of_sums(Row<Op, T, kPacks, kVectors, kShape>& row, D d, Names names,
                                             const Make& make, const F&... f) {
  return make(row.sums_of(d, names, f...));
}

}  // namespace rlk::simt

#endif
