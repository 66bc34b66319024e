// What norms ask of a row: the root of its mean square, its mean and its standard deviation. In fp64, in which a square
// of a number of fewer bits is exact; in fp32 where that loses nothing that could be seen, for conversions to fp64 take
// longer than the memory. Which of them depends on the row's numbers alone, and is the same for all of its threads.
#pragma once

#include "rows.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

#include <rlk/formula/norm.hpp>

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
  const auto mean_square = [&](auto d, double scale) {
    return row.sum(d, names, [&](auto d, auto... v) {
      const double scaled = number(d, v...) * scale;
      return formula::Mul(scaled, scaled);
    }) / static_cast<double>(row.columns());
  };
  const auto plain_mean_square = [&] {
    if constexpr (Row::kHalf) {
      // Products of two numbers of 16 bits are exact in fp32 as well, within its range.
      const double sum = row.sum(Lane<float>(), names, [&](auto d, auto... v) {
        const float own = number(d, v...);
        return formula::Mul(own, own);
      });
      if (is_finite(sum) && sum > 0x1p-90) return sum / static_cast<double>(row.columns());
    }
    if constexpr (Row::kHalf) return mean_square(RareLane(), 1);
    return mean_square(wide, 1);
  };
  const double plain = plain_mean_square() + eps, root = 1 / ::sqrt(plain);
  if constexpr (sizeof(typename Row::A) == 4) {
    // A row whose root is large has only small numbers, and one whose root is small has a large one, beside which what
    // the scale makes subnormal is 0.
    const double scale = root > 0x1p100 && is_finite(root) ? 0x1p100 : root < 0x1p-100 && root > 0 ? 0x1p-20 : 1;
    return {scale, root / scale};
  } else {
    // Squares may be out of range themselves.
    if ((plain > 0x1p-900 && plain < 0x1p900) || plain != plain) return {1, root};
    const double largest =
        row.largest(RareLane(), names, [&](auto d, auto... v) { return formula::Abs(number(d, v...)); });
    if (!(largest > 0) || !is_finite(largest)) return {1, root};
    const int power = ::ilogb(largest), within = power > 1000 ? 1000 : power < -1000 ? -1000 : power;
    const double scale = ::ldexp(1.0, -within);
    return {scale, 1 / ::sqrt(mean_square(RareLane(), scale) + eps * scale * scale)};
  }
}
template <class Row, int x>
__device__ __forceinline__ RowRoot root_of_row(Row& row, RowNames<x> names, double eps) {
  return root_of_row(row, names, eps, [](auto, auto v) { return v; });
}

// is_within: x less the mean and what is made of it by the root are within the range of fp32.
struct RowMoments {
  double mean, rstd;
  bool is_within;
};
// In two passes: the variance as a difference of squares loses all digits where the mean is large.
template <class Row, int x>
__device__ __forceinline__ RowMoments moments_of_row(Row& row, RowNames<x> names, double eps) {
  const auto columns = static_cast<double>(row.columns());
  const auto mean_of = [&](auto d) { return row.sum(d, names, [](auto, auto v) { return v; }) / columns; };
  // The mean in two parts: a difference keeps its digits where x is near the mean.
  const auto variance_of = [&](auto d, double mean) {
    return row.sum(d, names, [mean](auto d, auto v) {
      const auto difference = formula::less_mean(d, v, mean);
      return formula::Mul(difference, difference);
    }) / columns;
  };
  const Lane<double> wide{};
  if constexpr (!Row::kLong) {
    // Packs of numbers of 16 bits are summed without loss but where some are much smaller than others.
    const double mean = Row::kHalf ? mean_of(Lane<float>()) : mean_of(wide);
    const double variance = variance_of(Lane<float>(), mean);
    if (is_finite(variance) && (variance > 0x1p-90 || eps > 0x1p-90)) {
      return {mean, 1 / ::sqrt(variance + eps), true};
    }
  }
  if constexpr (Row::kLong) {
    const double mean = mean_of(wide);
    return {mean, 1 / ::sqrt(variance_of(wide, mean) + eps), false};
  }
  const double mean = mean_of(RareLane());
  return {mean, 1 / ::sqrt(variance_of(RareLane(), mean) + eps), false};
}

// The mean of f over a row, and whether a gradient that takes as much as root times it is within the range of fp32.
struct RowMean {
  double value;
  bool is_within;
};
template <class Row, class Names, class F>
__device__ __forceinline__ RowMean mean_of_row(Row& row, const Names& names, double root, const F& f) {
  const auto columns = static_cast<double>(row.columns());
  if constexpr (Row::kHalf) {
    const double mean = row.sum(Lane<float>(), names, f) / columns;
    if (root <= 0x1p10 && mean > -0x1p20 && mean < 0x1p20) return {mean, true};
    return {row.sum(RareLane(), names, f) / columns, false};
  }
  return {row.sum(Lane<double>(), names, f) / columns, false};
}

// Two of them, of a row less its mean.
struct RowMeans {
  double value, along;
  bool is_within;
};
template <class Row, class Names, class F, class G>
__device__ __forceinline__ RowMeans means_of_row(Row& row, const Names& names, const RowMoments& moments, const F& f,
                                                 const G& g) {
  const auto columns = static_cast<double>(row.columns());
  const auto means = [&](auto d, bool is_within) -> RowMeans {
    const auto sums = row.sums(d, names, f, g);
    return {sums.first / columns, sums.second / columns, is_within};
  };
  if constexpr (Row::kHalf) {
    const auto is_small = [](double x) { return x > -0x1p20 && x < 0x1p20; };
    if (moments.is_within && moments.rstd <= 0x1p10) {
      const RowMeans narrow = means(Lane<float>(), true);
      if (is_small(narrow.value) && is_small(narrow.along)) return narrow;
    }
    return means(RareLane(), false);
  }
  return means(Lane<double>(), false);
}

}  // namespace rlk::simt

#endif
