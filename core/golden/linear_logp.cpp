// The log-probability of one chosen token per row from hidden states: the declaration's formula, row by row, fp64.
#include "core/golden/linear_scores.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {

std::vector<double> load_matrix(const View& view) {
  std::vector<double> matrix;
  for (int64_t row = 0; row < view.shape[0]; ++row) {
    for (int64_t column = 0; column < view.shape[1]; ++column) matrix.push_back(view.load(row, column));
  }
  return matrix;
}

std::vector<Score> scores_of(const CallOf<sdk::ops::LinearLogp>& call, const std::vector<double>& weight, int64_t n) {
  std::vector<Score> scores;
  std::vector<double> hidden;
  for (int64_t d = 0; d < call.D; ++d) hidden.push_back(call.hidden.load(n, d));
  for (int64_t v = 0; v < call.V; ++v) {
    if (is_dropped(call, n, v)) {
      scores.push_back(dropped_score());
      continue;
    }
    Sum sum;
    double x_error = 0;
    for (int64_t d = 0; d < call.D; ++d) {
      const double product = hidden[static_cast<size_t>(d)] * weight[static_cast<size_t>(v * call.D + d)];
      sum.add(product);
      x_error += std::fabs(product);
    }
    const std::span row(weight.data() + v * call.D, hidden.size());
    const double bias = call.bias.present() ? call.bias.load(v) : 0.0;
    if (bias == 0 && is_exact_product(hidden, row, call.epsilon)) x_error = 0;
    if (std::isfinite(bias)) x_error += std::fabs(bias);
    scores.push_back(score_of(call.params, sum.value() + bias, x_error));
  }
  return scores;
}

DataError linear_logp(CallOf<sdk::ops::LinearLogp>& call) {
  const std::vector<double> weight = load_matrix(call.weight);
  return answer_rows(call, [&](int64_t n) { return scores_of(call, weight, n); });
}

}  // namespace rlk::golden
