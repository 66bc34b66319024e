// The log-probability of one chosen token per row: the declaration's formula, two passes, fp64.
#include <rlk/ops/logp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/golden.hpp"
#include "core/golden/logp_rows.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct RowResult {
  double max = 0, log_sum = 0;  // of the scores, of their powers below the maximum
  double lse = 0, lse_cond = 0;
  double entropy = 0, entropy_cond = 0;
};
constexpr RowResult kNanRow = {kNan, kNan, kNan, 0, kNan, 0};

// lse and, where it is wanted, entropy of finite or -inf scores with at least one finite score. A NaN or +inf score
// makes the row NaN.
RowResult reduce(const std::vector<double>& z, bool want_entropy) {
  const double max = *std::max_element(z.begin(), z.end());
  std::vector<double> powers;
  powers.reserve(z.size());
  Sum total;
  for (double score : z) {
    powers.push_back(std::exp(score - max));
    total.add(powers.back());
  }
  const double sum = total.value();
  RowResult row;
  row.max = max;
  row.log_sum = std::log(sum);
  row.lse = max + row.log_sum;
  if (!std::isfinite(row.lse)) return kNanRow;

  // Relative to the maximum: where scores are large, lse and the mean of z agree in their first digits, and exp(z -
  // lse) would carry the rounding of lse into every p.
  Sum mean_below_max;   // of z - max under p
  double mean_abs = 0;  // of |z|
  for (size_t v = 0; v < z.size(); ++v) {
    const double score = z[v], p = powers[v] / sum;
    if (score == -kInfinity) continue;
    mean_below_max.add(p * (score - max));
    mean_abs += p * std::fabs(score);
  }
  row.entropy = row.log_sum - mean_below_max.value();

  // d lse / d z[v] = p[v], and z[v] is off by eps |z[v]|; the maximum, its difference and the result are rounded; the
  // sum and its logarithm are off by a relative, hence in lse absolute, eps.
  row.lse_cond = kTiny + 1 + std::fabs(max) + std::fabs(row.lse) + mean_abs;
  if (!want_entropy) return row;
  // d entropy / d z[v] = -p[v] (log p[v] + entropy), and the argument of exp is off by eps (1 + |z[v]| + |max|); the
  // two terms that are subtracted are off like lse.
  double spread = 0;
  for (double score : z) {
    if (score == -kInfinity) continue;
    const double log_p = score - row.lse;
    spread += std::exp(log_p) * std::fabs(log_p + row.entropy) * (1 + std::fabs(score) + std::fabs(max));
  }
  row.entropy_cond = row.lse_cond + spread;
  return row;
}

}  // namespace

LogpResult logp(const LogpCall& call) {
  const int64_t n_rows = call.ids.shape[0];
  const int64_t vocab = call.logits.shape[1];
  const int64_t global_vocab = call.global_vocab > 0 ? call.global_vocab : vocab;
  const bool whole_vocabulary = global_vocab == vocab;

  LogpResult result;
  const auto put = [](Output& output, bool wanted, double value, double cond) {
    if (!wanted) return;
    output.value.push_back(value);
    output.cond.push_back(std::isfinite(value) ? cond : 0.0);
  };
  const auto put_row = [&](double logp, double logp_cond, const RowResult& row) {
    put(result.logp, true, logp, logp_cond);
    put(result.lse, call.want_lse, row.lse, row.lse_cond);
    put(result.entropy, call.want_entropy, row.entropy, row.entropy_cond);
  };

  std::vector<double> z(static_cast<size_t>(vocab));
  for (int64_t n = 0; n < n_rows; ++n) {
    if (is_ignored(call, n)) {
      put_row(0, 0, {});
      continue;
    }
    if (const DataError error = row_error(call, n); error.kind != kNoDataError) {
      keep_first(result.error, error);
      put_row(kNan, 0, kNanRow);
      continue;
    }
    const int64_t r = call.row_indices.present() ? call.row_indices.load_int(n) : n;
    for (int64_t v = 0; v < vocab; ++v) z[static_cast<size_t>(v)] = score(call, r, v);

    const bool all_masked = std::all_of(z.begin(), z.end(), [](double score) { return score == -kInfinity; });
    if (all_masked && whole_vocabulary) {
      keep_first(result.error, {kNoFiniteLogit, n, 0});
      put_row(kNan, 0, kNanRow);
      continue;
    }
    if (all_masked) {
      put_row(-kInfinity, 0, {-kInfinity, 0, -kInfinity, 0, 0, 0});
      continue;
    }
    const RowResult row = reduce(z, call.want_entropy);
    const int64_t target = call.ids.load_int(n) - call.vocab_start;
    if (target < 0 || target >= vocab) {  // another shard owns it
      put_row(-kInfinity, 0, row);
      continue;
    }
    // The score of the target is off by eps |z|, lse by its own condition. The maximum first: where scores are large,
    // lse has no digits left for the sum.
    const double target_score = z[static_cast<size_t>(target)];
    put_row((target_score - row.max) - row.log_sum, std::fabs(target_score) + row.lse_cond, row);
  }
  return result;
}

Answer answer_logp(const Call& call) {
  const auto& params = call.params_as<rlk_logp_params>();
  LogpCall golden;
  golden.logits = call[RLK_LOGP_IN_LOGITS];
  golden.ids = call[RLK_LOGP_IN_IDS];
  golden.bias = call[RLK_LOGP_IN_BIAS];
  golden.mask = call[RLK_LOGP_IN_MASK];
  golden.row_indices = call[RLK_LOGP_IN_ROW_INDICES];
  golden.temperature = params.temperature;
  golden.softcap = params.softcap;
  golden.ignore_index = params.ignore_index;
  golden.vocab_start = params.vocab_start;
  golden.global_vocab = params.global_vocab;
  golden.want_lse = call.wants(RLK_LOGP_OUT_LSE);
  golden.want_entropy = call.wants(RLK_LOGP_OUT_ENTROPY);
  LogpResult result = logp(golden);
  return {{std::move(result.logp), std::move(result.lse), std::move(result.entropy)}, result.error};
}

}  // namespace rlk::golden
