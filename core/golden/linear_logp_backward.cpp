// The gradients of linear_logp's outputs with respect to hidden, weight and bias: the declaration's formula, fp64.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include <limits>

#include "core/golden/linear_scores.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Sums of dx times numbers: each term is off by its own condition and once more for the product and the sum, and by
// what dx is rounded by.
struct Sums {
  explicit Sums(int64_t size, const Rounding& rounding = {})
      : value(static_cast<size_t>(size)), cond(static_cast<size_t>(size)), rounded(rounding ? value.size() : 0) {}
  void add(int64_t at, Tracked dx, double rounding, double factor) {
    value[static_cast<size_t>(at)].add(dx.value * factor);
    cond[static_cast<size_t>(at)] += (dx.error + std::fabs(dx.value)) * std::fabs(factor);
    if (!rounded.empty()) rounded[static_cast<size_t>(at)] += rounding * std::fabs(factor);
  }
  void spoil(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) value[static_cast<size_t>(i)].add(kNan);
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

}  // namespace

DataError linear_logp_backward(CallOf<sdk::ops::LinearLogpBackward>& call) {
  auto forward = sdk::forward_of<CallOf<sdk::ops::LinearLogp>>(call);
  forward.epsilon = call.epsilon;
  const std::vector<double> hidden = load_matrix(call.hidden), weight = load_matrix(call.weight);
  const auto at = [&call](const std::vector<double>& matrix, int64_t row, int64_t d) {
    return matrix[static_cast<size_t>(row * call.D + d)];
  };
  Sums grad_hidden(call.N * call.D, call.rounding), grad_weight(call.V * call.D, call.rounding), grad_bias(call.V);
  DataError first;
  for (int64_t n = 0; n < call.N; ++n) {
    if (is_ignored(call, n)) continue;
    DataError error = row_error(call, n);
    std::vector<Score> scores;
    if (error.kind == kNoDataError) {
      scores = scores_of(forward, weight, n);
      if (all_masked(scores) && has_whole_vocabulary(call)) error = {kNoFiniteLogit, n, 0};
    }
    keep_first(first, error);
    if (error.kind != kNoDataError) {
      grad_hidden.spoil(n * call.D, (n + 1) * call.D);
      continue;
    }
    const RowGradients row = row_gradients(call, n);
    for (int64_t v = 0; v < call.V; ++v) {
      const Tracked dx = gradient_of(scores[static_cast<size_t>(v)], row, v == row.target);
      const double rounding = call.rounding.of(dx.value);
      grad_bias.add(v, dx, 0, 1);
      for (int64_t d = 0; d < call.D; ++d) {
        grad_hidden.add(n * call.D + d, dx, rounding, at(weight, v, d));
        grad_weight.add(v * call.D + d, dx, rounding, at(hidden, n, d));
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
