// A score and its slope in fp64, with the first-order error of both.
#include "core/golden/linear_scores.hpp"
#include "core/golden/sum.hpp"

#include <cmath>
#include <limits>

namespace rlk::golden {

bool LinearOperands::is_ignored(int64_t n) const {
  return (mask.present() && mask.load_int(n) == 0) || ids.load_int(n) == ignore_index;
}

DataError LinearOperands::id_error(int64_t n) const {
  const int64_t id = ids.load_int(n);
  if (id < 0 || id >= (global_vocab > 0 ? global_vocab : vocab())) return {kIdOutOfRange, n, id};
  return {};
}

std::vector<LinearScore> linear_scores(const LinearOperands& operands, const std::vector<double>& weight, int64_t n) {
  std::vector<LinearScore> scores(static_cast<size_t>(operands.vocab()));
  std::vector<double> hidden;
  for (int64_t d = 0; d < operands.depth(); ++d) hidden.push_back(operands.hidden.load(n, d));
  for (int64_t v = 0; v < operands.vocab(); ++v) {
    LinearScore& score = scores[static_cast<size_t>(v)];
    Sum product_sum;
    for (int64_t d = 0; d < operands.depth(); ++d) {
      const double product = hidden[static_cast<size_t>(d)] * weight[static_cast<size_t>(v * operands.depth() + d)];
      product_sum.add(product);
      score.x_error += std::fabs(product);
    }
    score.x = product_sum.value();
    if (operands.bias.present()) {
      const double bias = operands.bias.load(v);
      score.x += bias;
      if (std::isfinite(bias)) score.x_error += std::fabs(bias);
    }
    score.z = score.x / operands.temperature;
    score.slope = score.slope_error = 1 / operands.temperature;
    if (operands.softcap > 0) {
      const double t = std::tanh(score.x / operands.softcap);
      score.z = operands.softcap * t / operands.temperature;
      score.slope = (1 - t * t) / operands.temperature;
      // 1 - t^2 is off by an absolute eps, and follows x with -2 t (1 - t^2) / softcap.
      score.slope_error = 1 / operands.temperature;
      score.slope_error += 2 * std::fabs(t) * score.slope * score.x_error / operands.softcap;
    }
    // The product of x and its slope is off as x is; the cap and the quotient round once more.
    score.z_error = score.slope * score.x_error;
    if (score.z != -std::numeric_limits<double>::infinity()) score.z_error += std::fabs(score.z);
  }
  return scores;
}

std::vector<double> load_matrix(const View& view) {
  std::vector<double> matrix;
  for (int64_t row = 0; row < view.shape[0]; ++row) {
    for (int64_t column = 0; column < view.shape[1]; ++column) matrix.push_back(view.load(row, column));
  }
  return matrix;
}

}  // namespace rlk::golden
