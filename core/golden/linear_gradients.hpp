// From the gradients of scores that are products to those of hidden, weight and bias, fp64: what the backwards of
// linear losses agree on.
#pragma once

#include <limits>

#include "core/golden/linear_scores.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {

// Sums of dx times numbers: each term is off by its own condition and once more for the product and the sum, and by
// what dx is rounded by.
struct GradientSums {
  explicit GradientSums(int64_t size, const Rounding& rounding = {})
      : value(static_cast<size_t>(size)), cond(static_cast<size_t>(size)), rounded(rounding ? value.size() : 0) {}
  // lost: what a product is off by where it is subnormal, which dx.error says unless dx alone is of ordinary size.
  void add(int64_t at, Tracked dx, double rounding, double factor, double lost = 0) {
    const double product = dx.value * factor;
    value[static_cast<size_t>(at)].add(product);
    cond[static_cast<size_t>(at)] += (dx.error + std::fabs(dx.value)) * std::fabs(factor) + (product != 0 ? lost : 0);
    if (!rounded.empty()) rounded[static_cast<size_t>(at)] += rounding * std::fabs(factor);
  }
  void spoil(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) value[static_cast<size_t>(i)].add(std::numeric_limits<double>::quiet_NaN());
  }
  void put_to(Output& output) && {
    for (size_t i = 0; i < value.size(); ++i) {
      put(output, Tracked(value[i].value(), cond[i]));
      if (!std::isfinite(output.value.back()) && !rounded.empty()) rounded[i] = 0;
    }
    output.rounded = std::move(rounded);
  }
  std::vector<Sum> value;
  std::vector<double> cond, rounded;
};

// What a row without a data error adds to the gradients: dx of every score, nothing when the row is ignored.
struct RowOfGradients {
  DataError error;
  std::vector<Tracked> dx;
};

// Answers the three gradients. row(n): RowOfGradients. lost: of every product, as above.
template <class Call, typename Row>
DataError answer_linear_gradients(Call& call, Row&& row, double lost = 0) {
  const std::vector<double> hidden = load_matrix(call.hidden), weight = load_matrix(call.weight);
  const auto at = [&call](const std::vector<double>& matrix, int64_t i, int64_t d) {
    return matrix[static_cast<size_t>(i * call.D + d)];
  };
  GradientSums grad_hidden(call.N * call.D, call.rounding), grad_weight(call.V * call.D, call.rounding);
  GradientSums grad_bias(call.V);
  DataError first;
  for (int64_t n = 0; n < call.N; ++n) {
    const RowOfGradients of_row = row(n);
    keep_first(first, of_row.error);
    if (of_row.error.kind != kNoDataError) {
      grad_hidden.spoil(n * call.D, (n + 1) * call.D);
      continue;
    }
    for (int64_t v = 0; v < static_cast<int64_t>(of_row.dx.size()); ++v) {
      const Tracked dx = of_row.dx[static_cast<size_t>(v)];
      const double rounding = call.rounding.of(dx.value);
      grad_bias.add(v, dx, 0, 1);
      for (int64_t d = 0; d < call.D; ++d) {
        grad_hidden.add(n * call.D + d, dx, rounding, at(weight, v, d), lost);
        grad_weight.add(v * call.D + d, dx, rounding, at(hidden, n, d), lost);
      }
    }
  }
  if (first.kind != kNoDataError) {
    grad_weight.spoil(0, call.V * call.D);
    grad_bias.spoil(0, call.V);
  }
  std::move(grad_hidden).put_to(call.grad_hidden);
  std::move(grad_weight).put_to(call.grad_weight);
  std::move(grad_bias).put_to(call.grad_bias);
  return first;
}

}  // namespace rlk::golden
