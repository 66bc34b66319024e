// The log-probability of one chosen token per row from hidden states: the declaration's formula, row by row, fp64.
#include <rlk/ops/linear_logp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/linear_scores.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Row {
  double logp = 0, logp_cond = 0;
  double lse = 0, lse_cond = 0;
  double entropy = 0, entropy_cond = 0;
};
constexpr Row kNanRow = {kNan, 0, kNan, 0, kNan, 0};

// At least one score is not -inf; a NaN or +inf makes the row NaN. target: its index, or one outside.
Row reduce(const std::vector<LinearScore>& scores, int64_t target) {
  double max = -kInfinity;
  for (const LinearScore& score : scores) max = std::isnan(score.z) ? score.z : std::max(max, score.z);
  Sum powers;
  for (const LinearScore& score : scores) powers.add(std::exp(score.z - max));
  const double sum = powers.value();
  const bool is_here = target >= 0 && target < static_cast<int64_t>(scores.size());
  Row row;
  row.lse = max + std::log(sum);
  if (!std::isfinite(row.lse)) {
    row = kNanRow;
    if (!is_here) row.logp = -kInfinity;
    return row;
  }

  Sum mean_below_max;     // of z - max under p
  double mean_error = 0;  // of the scores' errors
  for (const LinearScore& score : scores) {
    if (score.z == -kInfinity) continue;
    const double p = std::exp(score.z - max) / sum;
    mean_below_max.add(p * (score.z - max));
    mean_error += p * score.z_error;
  }
  row.entropy = std::log(sum) - mean_below_max.value();

  // As in logp: d lse / d z[v] = p[v]; the maximum, its difference and the result are rounded; the sum and its
  // logarithm are off by a relative, hence in lse absolute, eps.
  row.lse_cond = kTiny + 1 + std::fabs(max) + std::fabs(row.lse) + mean_error;
  // d entropy / d z[v] = -p[v] (log p[v] + entropy), and the argument of exp is off by eps (1 + the score's error +
  // |max|).
  double spread = 0;
  for (const LinearScore& score : scores) {
    if (score.z == -kInfinity) continue;
    const double log_p = score.z - row.lse;
    spread += std::exp(log_p) * std::fabs(log_p + row.entropy) * (1 + score.z_error + std::fabs(max));
  }
  row.entropy_cond = row.lse_cond + spread;

  if (!is_here) {  // another shard owns it
    row.logp = -kInfinity;
    return row;
  }
  const LinearScore& score = scores[static_cast<size_t>(target)];
  row.logp = (score.z - max) - std::log(sum);  // where scores are large, lse has no digits left for the sum
  row.logp_cond = score.z_error + row.lse_cond;
  return row;
}

bool all_masked(const std::vector<LinearScore>& scores) {
  return std::all_of(scores.begin(), scores.end(), [](const LinearScore& score) { return score.z == -kInfinity; });
}

}  // namespace

Answer answer_linear_logp(const Call& call) {
  const auto& params = call.params_as<rlk_linear_logp_params>();
  LinearOperands operands;
  operands.hidden = call[RLK_LINEAR_LOGP_IN_HIDDEN];
  operands.weight = call[RLK_LINEAR_LOGP_IN_WEIGHT];
  operands.ids = call[RLK_LINEAR_LOGP_IN_IDS];
  operands.bias = call[RLK_LINEAR_LOGP_IN_BIAS];
  operands.mask = call[RLK_LINEAR_LOGP_IN_MASK];
  operands.temperature = params.temperature;
  operands.softcap = params.softcap;
  operands.ignore_index = params.ignore_index;
  operands.vocab_start = params.vocab_start;
  operands.global_vocab = params.global_vocab;

  const std::vector<double> weight = load_matrix(operands.weight);
  Answer answer;
  answer.outputs.resize(RLK_LINEAR_LOGP_N_OUTPUTS);
  const auto put = [&](int output, double value, double cond) {
    if (!call.wants(output)) return;
    answer.outputs[static_cast<size_t>(output)].value.push_back(value);
    answer.outputs[static_cast<size_t>(output)].cond.push_back(std::isfinite(value) ? cond : 0.0);
  };
  for (int64_t n = 0; n < operands.rows(); ++n) {
    Row row;
    if (!operands.is_ignored(n)) {
      DataError error = operands.id_error(n);
      std::vector<LinearScore> scores;
      if (error.kind == kNoDataError) {
        scores = linear_scores(operands, weight, n);
        if (all_masked(scores) && operands.whole_vocabulary()) error = {kNoFiniteLogit, n, 0};
      }
      if (error.kind != kNoDataError) {
        if (answer.error.kind == kNoDataError) answer.error = error;
        row = kNanRow;
      } else if (all_masked(scores)) {
        row = {-kInfinity, 0, -kInfinity, 0, 0, 0};
      } else {
        row = reduce(scores, operands.ids.load_int(n) - operands.vocab_start);
      }
    }
    put(RLK_LINEAR_LOGP_OUT_LOGP, row.logp, row.logp_cond);
    put(RLK_LINEAR_LOGP_OUT_LSE, row.lse, row.lse_cond);
    put(RLK_LINEAR_LOGP_OUT_ENTROPY, row.entropy, row.entropy_cond);
  }
  return answer;
}

}  // namespace rlk::golden
