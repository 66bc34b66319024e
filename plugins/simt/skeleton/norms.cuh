// What norms ask of a row: the root of its mean square, its mean and its standard deviation. In fp64, in which a square
// of a number of fewer bits is exact; in fp32 where that loses nothing that could be seen, for conversions to fp64 take
// longer than the memory. Which of them depends on the row's numbers alone, and is the same for all of its threads.
#pragma once

#include "row_terms.cuh"

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
  const auto mean_square = [=](auto& row, auto d, double scale) {
    return row.mean_of(row.sum(d, names, [=](auto d, auto... v) {
      const double scaled = number(d, v...) * scale;
      return formula::Mul(scaled, scaled);
    }));
  };
  const auto plain_mean_square = [&] {
    if constexpr (!Row::kLong) {
      // Of two numbers of 16 bits products are exact in fp32 as well, within its range; of others a pack's sum is off
      // by less than what its results are rounded by.
      const double sum = row.sum(Lane<float>(), names, [&](auto d, auto... v) {
        const float own = number(d, v...);
        return product(own, own);
      });
      return row.fit_or(is_finite(sum) && sum > 0x1p-90, row.mean_of(sum),
                        [=](auto& row) { return mean_square(row, RareLane(), 1); });
    } else {
      return mean_square(row, Lane<double>(), 1);
    }
  };
  const double plain = plain_mean_square() + eps, root = inverse_root(plain);
  if constexpr (sizeof(typename Row::A) == 4) {
    // A row whose root is large has only small numbers, and one whose root is small has a large one, beside which what
    // the scale makes subnormal is 0.
    if (root > 0x1p100 && is_finite(root)) return {0x1p100, root * 0x1p-100};
    if (root < 0x1p-100 && root > 0) return {0x1p-20, root * 0x1p20};
    return {1, root};
  } else {
    // Squares may be out of range themselves.
    const bool is_fit = (plain > 0x1p-900 && plain < 0x1p900) || plain != plain;
    return row.fit_or(is_fit, RowRoot{1, root}, [=](auto& row) -> RowRoot {
      const double largest =
          row.largest(RareLane(), names, [=](auto d, auto... v) { return formula::Abs(number(d, v...)); });
      const int power = ::ilogb(largest), within = power > 1000 ? 1000 : power < -1000 ? -1000 : power;
      const double scale = ::ldexp(1.0, -within);
      const RowRoot scaled = {scale, inverse_root(mean_square(row, RareLane(), scale) + eps * scale * scale)};
      return largest > 0 && is_finite(largest) ? scaled : RowRoot{1, root};
    });
  }
}
template <class Row, int x>
__device__ __forceinline__ RowRoot root_of_row(Row& row, RowNames<x> names, double eps) {
  return root_of_row(row, names, eps, [](auto, auto v) { return v; });
}

// What a mean is made of: numbers of 16 bits less the pivot, which fp32 sums without a loss that could be seen, or
// numbers of fp32 in fp64.
template <class Row, class D>
__device__ __forceinline__ auto first_of_pivot(D d, float v, double pivot) {
  if constexpr (Row::kHalf) {
    return formula::Sub(v, formula::number(d, pivot));
  } else {
    return static_cast<double>(v);
  }
}
// is_within: x less the mean and what is made of it by the root are within the range of fp32.
struct RowMoments {
  double mean, rstd;
  bool is_within;
};
// Whether squares of distances to a pivot say what those to the mean are: theirs is less by that of the two, and what
// that takes of the digits is a bit or two.
__device__ __forceinline__ bool is_near(double from_pivot, double variance) {
  return formula::Mul(from_pivot, from_pivot) <= 2 * variance;
}
// In one pass of distances to a pivot, which is near the mean of most rows, or in two: the variance as a difference of
// squares loses all digits where it is not.
template <class Row, int x>
__device__ __forceinline__ RowMoments moments_of_row(Row& row, RowNames<x> names, double eps) {
  const auto mean_in = [=](auto& row, auto d) {
    return row.mean_of(row.sum(d, names, [](auto, auto v) { return v; }));
  };
  // The mean in two parts: a difference keeps its digits where x is near the mean.
  const auto variance_of = [=](auto& row, auto d, double mean) {
    return row.mean_of(row.sum(d, names, [mean](auto d, auto v) {
      const auto difference = formula::less_mean(d, v, mean);
      return formula::Mul(difference, difference);
    }));
  };
  const auto moments_in = [=](auto& row, auto d) -> RowMoments {
    const double mean = mean_in(row, d);
    return {mean, inverse_root(variance_of(row, d, mean) + eps), false};
  };
  if constexpr (Row::kLong) {
    return moments_in(row, Lane<double>());
  } else {
    const double pivot = row.pivot(names);
    const auto sums = row.sums_of(
        Lane<float>(), names, [pivot](auto d, auto v) { return first_of_pivot<Row>(d, v, pivot); },
        [pivot](auto d, auto v) {
          const float distance = formula::Sub(v, formula::number(d, pivot));
          return product(distance, distance);
        });
    const double first = row.mean_of(sums[0]), mean = Row::kHalf ? pivot + first : first;
    const double from_pivot = mean - pivot, narrow = row.mean_of(sums[1]) - formula::Mul(from_pivot, from_pivot);
    const double variance = row.value_or(is_near(from_pivot, narrow), narrow,
                                         [=](auto& row) { return variance_of(row, Lane<float>(), mean); });
    return row.fit_or(is_finite(variance) && (variance > 0x1p-90 || eps > 0x1p-90),
                      RowMoments{mean, inverse_root(variance + eps), true},
                      [=](auto& row) { return moments_in(row, RareLane()); });
  }
}

// Of what a gradient is made of.
__device__ __forceinline__ bool is_small(double x) {
  return formula::Abs(static_cast<float>(x)) < 0x1p20f;
}
// What the gradient of x root weight asks of a row, in one pass: the root, and the mean of grad weight x root.
// is_within: the gradient and what is made on the way are within the range of fp32.
struct RowRmsGradient {
  double root, mean;
  bool is_within;
};
template <class Row, int of_grad, int of_x, int of_weight>
__device__ __forceinline__ RowRmsGradient rms_gradient_of_row(Row& row, RowNames<of_grad, of_x, of_weight> names,
                                                              double eps) {
  const auto along = [](auto, auto grad, auto v, auto w) { return product(formula::Mul(grad, w), v); };
  const auto made_of = [=](auto& row, const formula::Two<double>& sums, bool is_within) -> RowRmsGradient {
    const double root = inverse_root(row.mean_of(sums.first) + eps);
    return {root, row.mean_of(sums.second) * root, is_within};
  };
  if constexpr (Row::kLong) {
    const double root = root_of_row(row, RowNames<of_x>(), eps).root();
    const double mean = row.mean_of(row.sum(Lane<double>(), names, [=](auto d, auto grad, auto v, auto w) {
      return formula::rms_gradient_along(d, grad, v, w, root);
    }));
    return {root, mean, false};
  } else {
    const auto square = [](auto, auto, auto v, auto) { return product(v, v); };
    const auto make = [&](const auto& sums) {
      RowRmsGradient narrow = made_of(row, formula::Two<double>{sums[0], sums[1]}, true);
      // In fp32, in which they are needed: what is out of its range is not fit either.
      const auto squares = static_cast<float>(sums[0]), root = static_cast<float>(narrow.root);
      narrow.is_within = is_finite(squares) && (squares > 0x1p-90f || eps > 0x1p-60) && root <= 0x1p10f &&
                         is_small(narrow.mean) && fits_terms(narrow.root);
      return narrow;
    };
    const RowRmsGradient narrow = made_of_sums(row, Lane<float>(), names, make, square, along);
    return row.fit_or(narrow.is_within, narrow,
                      [=](auto& row) { return made_of(row, row.sums(RareLane(), names, square, along), false); });
  }
}

// formula::normal_of, in which what the mean's lower part takes is a number of the row.
template <class D, class V>
__device__ __forceinline__ V normal_of_row(D d, V x, double mean, double rstd) {
  const double high = static_cast<double>(static_cast<V>(mean));
  return formula::MulAdd(formula::Sub(x, formula::number(d, high)), formula::number(d, rstd),
                         formula::number(d, (high - mean) * rstd));
}
// And of layer norm's: its moments, the means of grad weight and of that times the normalised x, in one pass of
// distances to a pivot or in two, as moments_of_row.
struct RowNormGradient {
  double mean, rstd, value, along;
  bool is_within;
};
template <class Row, int of_grad, int of_x, int of_weight>
__device__ __forceinline__ RowNormGradient norm_gradient_of_row(Row& row, RowNames<of_grad, of_x, of_weight> names,
                                                                double eps) {
  const auto grad_weight = [](auto, auto grad, auto, auto w) { return formula::Mul(grad, w); };
  const auto mean_in = [=](auto& row, auto d) {
    return row.mean_of(row.sum(d, RowNames<of_x>(), [](auto, auto v) { return v; }));
  };
  const auto is_fit = [=](double variance) {
    const auto narrow = static_cast<float>(variance);
    return is_finite(narrow) && (narrow > 0x1p-90f || eps > 0x1p-90);
  };
  const auto gradient_in = [=](auto& row, auto d, double mean, bool is_within) -> RowNormGradient {
    const auto sums = row.sums(
        d, names,
        [mean](auto d, auto, auto v, auto) {
          const auto difference = formula::less_mean(d, v, mean);
          return product(difference, difference);
        },
        grad_weight,
        [mean](auto d, auto grad, auto v, auto w) {
          return product(formula::Mul(grad, w), formula::less_mean(d, v, mean));
        });
    const double variance = row.mean_of(sums.first), rstd = inverse_root(variance + eps);
    return {mean, rstd, row.mean_of(sums.second), row.mean_of(sums.third) * rstd, is_within && is_fit(variance)};
  };
  if constexpr (Row::kLong) {
    const RowMoments m = moments_of_row(row, RowNames<of_x>(), eps);
    const auto sums = row.sums(Lane<double>(), names, grad_weight, [=](auto d, auto grad, auto v, auto w) {
      return formula::Mul(formula::Mul(grad, w), formula::normal_of(d, v, m.mean, m.rstd));
    });
    return {m.mean, m.rstd, row.mean_of(sums.first), row.mean_of(sums.second), false};
  } else {
    const double pivot = row.pivot(RowNames<of_x>());
    const auto distance = [pivot](auto d, auto v) { return formula::Sub(v, formula::number(d, pivot)); };
    const auto is_small_enough = [](const RowNormGradient& of) {
      return of.is_within && static_cast<float>(of.rstd) <= 0x1p10f && is_small(of.value) && is_small(of.along) &&
             fits_terms(of.mean) && fits_terms(of.rstd);
    };
    struct Made {
      RowNormGradient of;
      bool is_near;
    };
    const auto make = [&](const auto& sums) -> Made {
      const double from_pivot = row.mean_of(sums[0]), value = row.mean_of(sums[2]);
      const double variance = row.mean_of(sums[1]) - formula::Mul(from_pivot, from_pivot);
      const double rstd = inverse_root(variance + eps);
      const double along = (row.mean_of(sums[3]) - formula::Mul(from_pivot, value)) * rstd;
      RowNormGradient narrow{pivot + from_pivot, rstd, value, along, is_fit(variance)};
      narrow.is_within = is_small_enough(narrow);
      return {narrow, is_near(from_pivot, variance)};
    };
    const Made made = made_of_sums(
        row, Lane<float>(), names, make, [=](auto d, auto, auto v, auto) { return distance(d, v); },
        [=](auto d, auto, auto v, auto) { return product(distance(d, v), distance(d, v)); }, grad_weight,
        [=](auto d, auto grad, auto v, auto w) { return product(formula::Mul(grad, w), distance(d, v)); });
    const RowNormGradient narrow = row.value_or(made.is_near, made.of, [=](auto& row) {
      RowNormGradient again = gradient_in(row, Lane<float>(), mean_in(row, Lane<float>()), true);
      again.is_within = is_small_enough(again);
      return again;
    });
    return row.fit_or(narrow.is_within, narrow,
                      [=](auto& row) { return gradient_in(row, RareLane(), mean_in(row, RareLane()), false); });
  }
}

}  // namespace rlk::simt

#endif
