// The answer of the whole vocabulary from its shards': the declaration's formula, row by row, fp64.
#include <rlk/ops/logp_merge.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/golden.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Row {
  double logp = 0, logp_cond = 0;
  double lse = 0, lse_cond = 0;
  double entropy = 0, entropy_cond = 0;
  bool has_no_finite_score = false;
};
constexpr Row kNanRow = {kNan, 0, kNan, 0, kNan, 0, false};

Row merge(const std::vector<double>& logp, const std::vector<double>& lse, const std::vector<double>& entropy) {
  const size_t shards = logp.size();
  const auto zeros = std::count(logp.begin(), logp.end(), 0.0);
  if (shards > 1 && zeros == static_cast<std::ptrdiff_t>(shards)) return {};  // ignored
  size_t owners = 0, owner = 0;
  double max = -kInfinity;
  for (size_t s = 0; s < shards; ++s) {
    if (std::isnan(logp[s]) || std::isnan(lse[s]) || lse[s] == kInfinity) return kNanRow;
    if (logp[s] != -kInfinity) owner = s, ++owners;
    max = std::max(max, lse[s]);
  }
  if (owners > 1) return kNanRow;
  if (max == -kInfinity) {
    Row row = kNanRow;
    row.has_no_finite_score = true;
    return row;
  }
  double sum = 0;
  for (const double number : lse) sum += std::exp(number - max);
  Row row;
  row.lse = max + std::log(sum);
  row.lse_cond = kTiny + 1 + std::fabs(max) + std::fabs(row.lse);
  row.logp = owners == 1 ? logp[owner] + (lse[owner] - row.lse) : -kInfinity;
  row.logp_cond = std::fabs(logp[owner]) + std::fabs(lse[owner]) + row.lse_cond;
  row.entropy_cond = kTiny;
  for (size_t s = 0; s < shards && !entropy.empty(); ++s) {
    if (lse[s] == -kInfinity) continue;
    const double share = std::exp(lse[s] - max) / sum;
    const double term = entropy[s] - (lse[s] - max - std::log(sum));
    row.entropy += share * term;
    // The share follows its exponent, which is off like lse; so are the terms.
    row.entropy_cond += share * (std::fabs(term) * (1 + std::fabs(lse[s]) + row.lse_cond) + std::fabs(entropy[s]));
    row.entropy_cond += share * (std::fabs(lse[s]) + row.lse_cond);
  }
  return row;
}

}  // namespace

Answer answer_logp_merge(const Call& call) {
  const View& shard_logp = call[RLK_LOGP_MERGE_IN_SHARD_LOGP];
  const View& shard_lse = call[RLK_LOGP_MERGE_IN_SHARD_LSE];
  const View& shard_entropy = call[RLK_LOGP_MERGE_IN_SHARD_ENTROPY];
  Answer answer;
  answer.outputs.resize(RLK_LOGP_MERGE_N_OUTPUTS);
  const auto put = [&](int output, double value, double cond) {
    if (!call.wants(output)) return;
    answer.outputs[static_cast<size_t>(output)].value.push_back(value);
    answer.outputs[static_cast<size_t>(output)].cond.push_back(std::isfinite(value) ? cond : 0.0);
  };
  for (int64_t n = 0; n < shard_logp.shape[1]; ++n) {
    std::vector<double> logp, lse, entropy;
    for (int64_t s = 0; s < shard_logp.shape[0]; ++s) {
      logp.push_back(shard_logp.load(s, n));
      lse.push_back(shard_lse.load(s, n));
      if (shard_entropy.present()) entropy.push_back(shard_entropy.load(s, n));
    }
    const Row row = merge(logp, lse, entropy);
    if (row.has_no_finite_score && answer.error.kind == kNoDataError) answer.error = {kNoFiniteLogit, n, 0};
    put(RLK_LOGP_MERGE_OUT_LOGP, row.logp, row.logp_cond);
    put(RLK_LOGP_MERGE_OUT_LSE, row.lse, row.lse_cond);
    put(RLK_LOGP_MERGE_OUT_ENTROPY, row.entropy, row.entropy_cond);
  }
  return answer;
}

}  // namespace rlk::golden
