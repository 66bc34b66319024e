// What norms ask of a row: the root of its mean square, its mean and its standard deviation. In fp64, in which a square
// of a number of fewer bits is exact.
#pragma once

#include "rows.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

namespace rlk::simt {

// 1 / sqrt(mean of squares + eps) is of_scaled times a power of two by which x is scaled, so that both products are
// within the range of the dtype that x root is computed in.
struct RowRoot {
  double scale, of_scaled;

  __device__ __forceinline__ double root() const { return of_scaled * scale; }
};

// x is number(d, the arguments...).
template <class Row, class Names, class Number>
__device__ __forceinline__ RowRoot root_of_row(Row& row, const Names& names, double eps, const Number& number) {
  const Lane<double> wide{};
  const auto mean_square = [&](double scale) {
    return row.sum(wide, names, [&](auto d, auto... v) {
      const double scaled = number(d, v...) * scale;
      return formula::Mul(scaled, scaled);
    }) / static_cast<double>(row.columns());
  };
  const double plain = mean_square(1) + eps, root = 1 / ::sqrt(plain);
  if constexpr (sizeof(typename Row::A) == 4) {
    // A row whose root is large has only small numbers, and one whose root is small has a large one, beside which what
    // the scale makes subnormal is 0.
    const double scale = root > 0x1p100 && is_finite(root) ? 0x1p100 : root < 0x1p-100 && root > 0 ? 0x1p-20 : 1;
    return {scale, root / scale};
  } else {
    // Squares may be out of range themselves.
    if ((plain > 0x1p-900 && plain < 0x1p900) || plain != plain) return {1, root};
    const double largest = row.largest(wide, names, [&](auto d, auto... v) { return formula::Abs(number(d, v...)); });
    if (!(largest > 0) || !is_finite(largest)) return {1, root};
    const int power = ::ilogb(largest), within = power > 1000 ? 1000 : power < -1000 ? -1000 : power;
    const double scale = ::ldexp(1.0, -within);
    return {scale, 1 / ::sqrt(mean_square(scale) + eps * scale * scale)};
  }
}
template <class Row, int x>
__device__ __forceinline__ RowRoot root_of_row(Row& row, RowNames<x> names, double eps) {
  return root_of_row(row, names, eps, [](auto, auto v) { return v; });
}

struct RowMoments {
  double mean, rstd;
};
// In two passes: the variance as a difference of squares loses all digits where the mean is large.
template <class Row, int x>
__device__ __forceinline__ RowMoments moments_of_row(Row& row, RowNames<x> names, double eps) {
  const Lane<double> wide{};
  const auto columns = static_cast<double>(row.columns());
  const double mean = row.sum(wide, names, [](auto, auto v) { return v; }) / columns;
  const double variance = row.sum(wide, names, [mean](auto, auto v) {
    const double difference = v - mean;
    return formula::Mul(difference, difference);
  }) / columns;
  return {mean, 1 / ::sqrt(variance + eps)};
}

}  // namespace rlk::simt

#endif
