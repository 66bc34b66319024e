// What trainers' formulas are made of: rows of numbers, some of them masked, with their sums, means and variances, each
// written as trainers write it.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {

using Row = List;
using Matrix = std::vector<Row>;  // [sequence][token]; of a mask 1 where the token counts

// Of a tensor of two dimensions; a mask becomes zeros and ones.
inline Matrix matrix_of(const Tensor& tensor) {
  const auto columns = static_cast<size_t>(tensor.shape()[1]);
  Matrix rows(static_cast<size_t>(tensor.shape()[0]), Row(columns));
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double number = tensor.dtype() == Dtype::u8 ? (tensor.get_int(i) != 0 ? 1 : 0) : tensor.get(i);
    rows[static_cast<size_t>(i) / columns][static_cast<size_t>(i) % columns] = number;
  }
  return rows;
}
inline Tensor tensor_of(const Matrix& rows) {
  List flat;
  for (const Row& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return numbers(flat, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
}
inline Tensor flags_of(const Matrix& rows) {
  const List list = list_of(tensor_of(rows));
  return flags({list.begin(), list.end()}, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
}

inline double tokens_of(const Row& mask) {
  return std::accumulate(mask.begin(), mask.end(), 0.0);
}
inline double tokens_of(const Matrix& mask) {
  return std::accumulate(mask.begin(), mask.end(), 0.0, [](double n, const Row& row) { return n + tokens_of(row); });
}
// Sequences that have a token.
inline double nonempty_of(const Matrix& mask) {
  return static_cast<double>(
      std::count_if(mask.begin(), mask.end(), [](const Row& row) { return tokens_of(row) > 0; }));
}
inline double row_sum(const Row& a, const Row& mask) {
  double sum = 0;
  for (size_t t = 0; t < a.size(); ++t) sum += mask[t] != 0 ? a[t] : 0.0;
  return sum;
}
inline double sum_of(const Matrix& a, const Matrix& mask) {
  double sum = 0;
  for (size_t b = 0; b < a.size(); ++b) sum += row_sum(a[b], mask[b]);
  return sum;
}
// The sum of sequences' means, each over at least so many tokens.
inline double sum_of_means(const Matrix& a, const Matrix& mask, double least = 1) {
  double sum = 0;
  for (size_t b = 0; b < a.size(); ++b) sum += row_sum(a[b], mask[b]) / std::max(tokens_of(mask[b]), least);
  return sum;
}

// Mean and variance of numbers.
struct Statistics {
  double n = 0, mean = 0, squares = 0;  // squares: of the differences to the mean

  explicit Statistics(const List& list) : n(static_cast<double>(list.size())) {
    mean = std::accumulate(list.begin(), list.end(), 0.0) / n;
    for (const double x : list) squares += (x - mean) * (x - mean);
  }
  // Of the numbers that the mask keeps.
  Statistics(const Matrix& x, const Matrix& mask) : Statistics(kept(x, mask)) {}

  double variance(bool unbiased) const { return squares / (unbiased ? n - 1 : n); }
  double deviation(bool unbiased) const { return std::sqrt(variance(unbiased)); }

private:
  static List kept(const Matrix& x, const Matrix& mask) {
    List list;
    for (size_t b = 0; b < x.size(); ++b) {
      for (size_t t = 0; t < x[b].size(); ++t) {
        if (mask[b][t] != 0) list.push_back(x[b][t]);
      }
    }
    return list;
  }
};

// What trainers divide by where they whiten.
inline double verl_divisor(const Statistics& s) {
  return std::sqrt(s.variance(true) + 1e-8);
}
inline double openrlhf_divisor(const Statistics& s) {
  return std::sqrt(std::max(s.variance(false), 1e-8));
}
inline double trl_divisor(const Statistics& s) {
  return s.deviation(true) + 1e-4;
}
// (x - mean) / divisor + shift of the numbers that the mask keeps, 0 elsewhere.
inline Matrix masked_normal(Matrix x, const Matrix& mask, double (*divisor)(const Statistics&), double shift = 0) {
  const Statistics s(x, mask);
  for (size_t b = 0; b < x.size(); ++b) {
    for (size_t t = 0; t < x[b].size(); ++t) x[b][t] = mask[b][t] * ((x[b][t] - s.mean) / divisor(s) + shift);
  }
  return x;
}

inline void expect_near(const Tensor& got, const List& want, double bound = 1e-12) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
  for (int64_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got.get(i), want[static_cast<size_t>(i)], bound) << i;
}
inline void expect_near(const Tensor& got, const Matrix& want, double bound = 1e-12) {
  expect_near(got, list_of(tensor_of(want)), bound);
}

}  // namespace rlk::test
