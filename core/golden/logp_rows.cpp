// From a row of scores to its log-probability, log-sum-exp and entropy, and to the gradient of each score, fp64.
#include "core/golden/logp_rows.hpp"

#include <algorithm>
#include <limits>

#include "core/golden/sum.hpp"

namespace rlk::golden {
namespace {}  // namespace

std::vector<Score> scores_of(const CallOf<sdk::ops::Logp>& call, int64_t r) {
  std::vector<Score> scores;
  scores.reserve(static_cast<size_t>(call.V));
  for (int64_t v = 0; v < call.V; ++v) {
    if (is_dropped(call, r, v)) {
      scores.push_back(dropped_score());
      continue;
    }
    const double x = call.logits.load(r, v) + (call.bias.present() ? call.bias.load(v) : 0.0);
    const double x_error = call.bias.present() && std::isfinite(x) ? std::fabs(x) : 0.0;
    scores.push_back(score_of(call.params, x, x_error));
  }
  return scores;
}

bool all_masked(const std::vector<Score>& scores) {
  return std::all_of(scores.begin(), scores.end(), [](const Score& score) { return score.z == -kInfinity; });
}

LogpRow nan_row() {
  return {kNan, kNan, kNan, kNan};
}

LogpRow logp_of(const std::vector<Score>& scores, int64_t target) {
  const bool is_here = target >= 0 && target < static_cast<int64_t>(scores.size());
  if (all_masked(scores)) return {-kInfinity, -kInfinity, 0.0, 0.0};
  double max = -kInfinity;
  for (const Score& score : scores) max = std::isnan(score.z) ? score.z : std::max(max, score.z);
  std::vector<double> powers(scores.size());
  Sum all_powers;
  for (size_t v = 0; v < scores.size(); ++v) all_powers.add(powers[v] = std::exp(scores[v].z - max));
  const double sum = all_powers.value(), log_sum = std::log(sum), lse = max + log_sum;
  LogpRow row = nan_row();
  if (!is_here) row.logp = -kInfinity;  // another shard owns it
  if (!std::isfinite(lse)) return row;  // a NaN or +inf is among the scores

  // Relative to the maximum: where scores are large, lse and the mean of z agree in their first digits, and exp(z -
  // lse) would carry the rounding of lse into every p.
  Sum mean_below_max;     // of z - max under p
  double mean_error = 0;  // of the scores' errors
  Sum squares;
  for (size_t v = 0; v < scores.size(); ++v) {
    const Score& score = scores[v];
    const double p = powers[v] / sum;
    if (p == 0) continue;
    mean_below_max.add(p * (score.z - max));
    mean_error += p * score.z_error;
    squares.add(p * p);
  }
  const double mean_distance = -mean_below_max.value();
  const double entropy = log_sum + mean_distance, sum_p2 = squares.value();

  // A sum of n terms of one sign, added in pairs, is off by eps log2 n of itself, and its logarithm by as much.
  const double sum_error = 1 + std::log2(static_cast<double>(scores.size()));
  // Below the maximum there are only differences, each rounded once.
  const double log_sum_error = kTiny + sum_error + std::fabs(log_sum) + mean_distance;
  // d lse / d z[v] = p[v]; the maximum and the result are rounded.
  row.lse = {lse, log_sum_error + std::fabs(max) + std::fabs(lse) + mean_error};
  // d entropy / d z[v] = -p[v] (log p[v] + entropy), and p[v] is off by eps (1 + its distance) beside the score's
  // error.
  double spread = 0;
  double spread_p2 = 0;  // d sum_p2 / d z[v] = 2 p[v] (p[v] - sum_p2)
  for (size_t v = 0; v < scores.size(); ++v) {
    const Score& score = scores[v];
    const double below_max = score.z - max, p = powers[v] / sum;
    if (p == 0) continue;
    spread_p2 += 2 * p * std::fabs(p - sum_p2) * (1 + std::fabs(below_max) + score.z_error);
    spread += p * std::fabs(below_max - log_sum + entropy) * (1 + std::fabs(below_max) + score.z_error);
  }
  row.entropy = {entropy, log_sum_error + sum_error * mean_distance + spread};
  // Two sums, one of them squared, and their quotient.
  row.sum_p2 = {sum_p2, kTiny + (3 * sum_error + 2) * sum_p2 + spread_p2};
  if (!is_here) return row;
  // d logp / d z[v] = [v == target] - p[v]: what is certain does not depend on how its score was rounded.
  const Score& score = scores[static_cast<size_t>(target)];
  const double below_max = score.z - max, p = std::exp(below_max) / sum;
  double logp_error = log_sum_error + std::fabs(below_max) + mean_error - p * score.z_error;
  if (std::isfinite(score.z)) logp_error += -std::expm1(below_max - log_sum) * score.z_error;
  row.logp = {below_max - log_sum, std::max(logp_error, log_sum_error + std::fabs(below_max))};
  return row;
}

Tracked gradient_of(const Score& score, const RowGradients& row, bool is_target) {
  if (score.x == -kInfinity) return 0.0;
  const double log_p = score.z - row.lse;
  const double p = std::exp(log_p);
  const double target = is_target ? 1.0 : 0.0;
  double dz = row.of_logp * (target - p) + row.of_lse * p;
  if (row.of_entropy != 0) dz -= row.of_entropy * p * (log_p + row.entropy);
  // log p is off by the score's error and once more for the difference to lse, p by that relatively and once more for
  // exp, and p may be flushed to zero; then each product and difference.
  const double log_p_error = score.z_error + std::fabs(log_p);
  const double p_error = kTiny + p * (1 + log_p_error);
  const double dz_cond = std::fabs(row.of_logp) * (target + p_error) + std::fabs(row.of_lse) * p_error +
                         std::fabs(row.of_entropy) *
                             (p_error * std::fabs(log_p + row.entropy) + p * (log_p_error + std::fabs(row.entropy)));
  if (is_vague(score.z_error, row.epsilon)) {  // p is any number, but a NaN in what it is multiplied by stays
    const bool is_finite = std::isfinite(row.lse + row.of_logp + row.of_lse + row.of_entropy + row.entropy);
    return {is_finite ? 0.0 : dz * score.slope, kInfinity};
  }
  return {dz * score.slope, kTiny + dz_cond * score.slope + std::fabs(dz) * score.slope_error};
}

}  // namespace rlk::golden
