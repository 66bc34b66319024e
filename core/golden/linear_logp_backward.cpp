// The gradients of linear_logp's outputs with respect to hidden, weight and bias: the declaration's formula, fp64.
#include <rlk/ops/linear_logp_backward.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/linear_scores.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct RowGradients {
  double lse, logp_gradient, lse_gradient, entropy_gradient, entropy;
  int64_t target;
};
RowGradients row_gradients(const Call& call, const LinearOperands& operands, int64_t n) {
  const auto load = [&](int input) { return call[input].present() ? call[input].load(n) : 0.0; };
  return {load(RLK_LINEAR_LOGP_BACKWARD_IN_LSE),      load(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_LOGP),
          load(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_LSE), load(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_ENTROPY),
          load(RLK_LINEAR_LOGP_BACKWARD_IN_ENTROPY),  operands.ids.load_int(n) - operands.vocab_start};
}

struct Gradient {
  double value = 0, cond = 0;
  double rounding = 0;  // what rounding it to the tensors' dtype may change
};

// dx[v] of one row.
Gradient gradient(const LinearScore& score, const RowGradients& row, bool is_target) {
  if (score.x == -kInfinity) return {};
  const double log_p = score.z - row.lse;
  const double p = std::exp(log_p);
  const double target = is_target ? 1.0 : 0.0;
  double dz = row.logp_gradient * (target - p) + row.lse_gradient * p;
  if (row.entropy_gradient != 0) dz -= row.entropy_gradient * p * (log_p + row.entropy);
  // As in logp_backward: log p is off by the score's error and eps |lse|, p by that relatively and once more for exp,
  // and p may be flushed to zero; then each product and difference.
  const double log_p_error = score.z_error + std::fabs(row.lse);
  const double p_error = kTiny + p * (1 + log_p_error);
  const double dz_cond = std::fabs(row.logp_gradient) * (target + p_error) + std::fabs(row.lse_gradient) * p_error +
                         std::fabs(row.entropy_gradient) *
                             (p_error * std::fabs(log_p + row.entropy) + p * (log_p_error + std::fabs(row.entropy)));
  return {dz * score.slope, kTiny + dz_cond * score.slope + std::fabs(dz) * score.slope_error};
}

// A sum of dx times numbers: each term is off by its own condition and once more for the product and the sum, and by
// what dx is rounded by.
struct Sums {
  explicit Sums(int64_t size, const Rounding& rounding = {})
      : value(static_cast<size_t>(size)), cond(static_cast<size_t>(size)), rounded(rounding ? value.size() : 0) {}
  void add(int64_t at, const Gradient& dx, double factor) {
    value[static_cast<size_t>(at)].add(dx.value * factor);
    cond[static_cast<size_t>(at)] += (dx.cond + std::fabs(dx.value)) * std::fabs(factor);
    if (!rounded.empty()) rounded[static_cast<size_t>(at)] += dx.rounding * std::fabs(factor);
  }
  void spoil(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) value[static_cast<size_t>(i)].add(kNan);
  }
  Output output() && {
    std::vector<double> totals;
    for (size_t i = 0; i < value.size(); ++i) {
      totals.push_back(value[i].value());
      if (std::isfinite(totals.back())) continue;
      cond[i] = 0;
      if (!rounded.empty()) rounded[i] = 0;
    }
    return {std::move(totals), std::move(cond), std::move(rounded)};
  }
  std::vector<Sum> value;
  std::vector<double> cond, rounded;
};

}  // namespace

Answer answer_linear_logp_backward(const Call& call) {
  const auto& params = call.params_as<rlk_linear_logp_backward_params>();
  LinearOperands operands;
  operands.hidden = call[RLK_LINEAR_LOGP_BACKWARD_IN_HIDDEN];
  operands.weight = call[RLK_LINEAR_LOGP_BACKWARD_IN_WEIGHT];
  operands.ids = call[RLK_LINEAR_LOGP_BACKWARD_IN_IDS];
  operands.bias = call[RLK_LINEAR_LOGP_BACKWARD_IN_BIAS];
  operands.mask = call[RLK_LINEAR_LOGP_BACKWARD_IN_MASK];
  operands.temperature = params.temperature;
  operands.softcap = params.softcap;
  operands.ignore_index = params.ignore_index;
  operands.vocab_start = params.vocab_start;
  operands.global_vocab = params.global_vocab;

  const int64_t rows = operands.rows(), vocab = operands.vocab(), depth = operands.depth();
  const std::vector<double> hidden = load_matrix(operands.hidden), weight = load_matrix(operands.weight);
  const auto at = [depth](const std::vector<double>& matrix, int64_t row, int64_t d) {
    return matrix[static_cast<size_t>(row * depth + d)];
  };
  Sums grad_hidden(rows * depth, call.rounding), grad_weight(vocab * depth, call.rounding), grad_bias(vocab);
  Answer answer;
  for (int64_t n = 0; n < rows; ++n) {
    if (operands.is_ignored(n)) continue;
    DataError error = operands.id_error(n);
    std::vector<LinearScore> scores;
    if (error.kind == kNoDataError) {
      scores = linear_scores(operands, weight, n);
      const bool all_masked =
          std::all_of(scores.begin(), scores.end(), [](const auto& s) { return s.z == -kInfinity; });
      if (all_masked && operands.whole_vocabulary()) error = {kNoFiniteLogit, n, 0};
    }
    if (error.kind != kNoDataError) {
      if (answer.error.kind == kNoDataError) answer.error = error;
      grad_hidden.spoil(n * depth, (n + 1) * depth);
      continue;
    }
    const RowGradients row = row_gradients(call, operands, n);
    for (int64_t v = 0; v < vocab; ++v) {
      Gradient dx = gradient(scores[static_cast<size_t>(v)], row, v == row.target);
      dx.rounding = call.rounding.of(dx.value);
      grad_bias.add(v, dx, 1);
      for (int64_t d = 0; d < depth; ++d) {
        grad_hidden.add(n * depth + d, dx, at(weight, v, d));
        grad_weight.add(v * depth + d, dx, at(hidden, n, d));
      }
    }
  }
  if (answer.error.kind != kNoDataError) {
    grad_weight.spoil(0, vocab * depth);
    grad_bias.spoil(0, vocab);
  }
  answer.outputs.resize(RLK_LINEAR_LOGP_BACKWARD_N_OUTPUTS);
  const auto put = [&](int output, Sums& sums) {
    if (call.wants(output)) answer.outputs[static_cast<size_t>(output)] = std::move(sums).output();
  };
  put(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_HIDDEN, grad_hidden);
  put(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_WEIGHT, grad_weight);
  put(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_BIAS, grad_bias);
  return answer;
}

}  // namespace rlk::golden
