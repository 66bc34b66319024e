// From a row of scores to its log-probability, log-sum-exp and entropy, and to the gradient of each score, fp64.
#include "core/golden/logp_rows.hpp"

#include <algorithm>
#include <limits>

#include "core/golden/sum.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::vector<Score> scores_of(const CallOf<sdk::ops::Logp>& call, int64_t r) {
  std::vector<Score> scores;
  for (int64_t v = 0; v < call.V; ++v) {
    const double x = call.logits.load(r, v) + (call.bias.present() ? call.bias.load(v) : 0.0);
    scores.push_back(score_of(call.params, x, 0));
  }
  return scores;
}

bool all_masked(const std::vector<Score>& scores) {
  return std::all_of(scores.begin(), scores.end(), [](const Score& score) { return score.z == -kInfinity; });
}

LogpRow nan_row() {
  return {kNan, kNan, kNan};
}

LogpRow logp_of(const std::vector<Score>& scores, int64_t target) {
  const bool is_here = target >= 0 && target < static_cast<int64_t>(scores.size());
  if (all_masked(scores)) return {-kInfinity, -kInfinity, 0.0};
  double max = -kInfinity;
  for (const Score& score : scores) max = std::isnan(score.z) ? score.z : std::max(max, score.z);
  Sum powers;
  for (const Score& score : scores) powers.add(std::exp(score.z - max));
  const double sum = powers.value(), log_sum = std::log(sum), lse = max + log_sum;
  LogpRow row = nan_row();
  if (!is_here) row.logp = -kInfinity;  // another shard owns it
  if (!std::isfinite(lse)) return row;  // a NaN or +inf is among the scores

  // Relative to the maximum: where scores are large, lse and the mean of z agree in their first digits, and exp(z -
  // lse) would carry the rounding of lse into every p.
  Sum mean_below_max;     // of z - max under p
  double mean_error = 0;  // of the scores' errors
  for (const Score& score : scores) {
    if (score.z == -kInfinity) continue;
    const double p = std::exp(score.z - max) / sum;
    mean_below_max.add(p * (score.z - max));
    mean_error += p * score.z_error;
  }
  const double entropy = log_sum - mean_below_max.value();

  // d lse / d z[v] = p[v]; the maximum, its difference and the result are rounded; the sum and its logarithm are off by
  // a relative, hence in lse absolute, eps.
  row.lse = {lse, kTiny + 1 + std::fabs(max) + std::fabs(lse) + mean_error};
  // d entropy / d z[v] = -p[v] (log p[v] + entropy), and the argument of exp is off by eps (1 + the score's error +
  // |max|); the two terms that are subtracted are off like lse.
  double spread = 0;
  for (const Score& score : scores) {
    if (score.z == -kInfinity) continue;
    const double log_p = score.z - lse;
    spread += std::exp(log_p) * std::fabs(log_p + entropy) * (1 + score.z_error + std::fabs(max));
  }
  row.entropy = {entropy, row.lse.error + spread};
  if (!is_here) return row;
  const Score& score = scores[static_cast<size_t>(target)];
  row.logp = {(score.z - max) - log_sum, score.z_error + row.lse.error};
  return row;
}

Tracked gradient_of(const Score& score, const RowGradients& row, bool is_target) {
  if (score.x == -kInfinity) return 0.0;
  const double log_p = score.z - row.lse;
  const double p = std::exp(log_p);
  const double target = is_target ? 1.0 : 0.0;
  double dz = row.of_logp * (target - p) + row.of_lse * p;
  if (row.of_entropy != 0) dz -= row.of_entropy * p * (log_p + row.entropy);
  // log p is off by the score's error and eps |lse|, p by that relatively and once more for exp, and p may be flushed
  // to zero; then each product and difference.
  const double log_p_error = score.z_error + std::fabs(row.lse);
  const double p_error = kTiny + p * (1 + log_p_error);
  const double dz_cond = std::fabs(row.of_logp) * (target + p_error) + std::fabs(row.of_lse) * p_error +
                         std::fabs(row.of_entropy) *
                             (p_error * std::fabs(log_p + row.entropy) + p * (log_p_error + std::fabs(row.entropy)));
  return {dz * score.slope, kTiny + dz_cond * score.slope + std::fabs(dz) * score.slope_error};
}

}  // namespace rlk::golden
