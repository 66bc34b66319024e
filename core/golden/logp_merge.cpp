// The answer of the whole vocabulary from its shards': the declaration's formula, row by row, fp64.
#include <rlk/sdk/ops/logp_merge.hpp>

#include <limits>

#include "core/golden/logp_rows.hpp"

namespace rlk::golden {
namespace {

struct MergedRow : LogpRow {
  bool has_no_finite_score = false;
};

MergedRow merge(const CallOf<sdk::ops::LogpMerge>& call, int64_t n) {
  const auto logp = [&](int64_t s) { return call.shard_logp.load(s, n); };
  const auto lse = [&](int64_t s) { return call.shard_lse.load(s, n); };
  int64_t zeros = 0, owners = 0, owner = 0;
  bool undefined = false;
  double max = -kInfinity;
  for (int64_t s = 0; s < call.S; ++s) {
    zeros += logp(s) == 0 ? 1 : 0;
    undefined |= std::isnan(logp(s)) || std::isnan(lse(s)) || lse(s) == kInfinity;
    if (logp(s) != -kInfinity) owner = s, ++owners;
    max = std::max(max, lse(s));
  }
  if (call.S > 1 && zeros == call.S) return {};  // ignored
  if (undefined || owners > 1) return {nan_row()};
  if (max == -kInfinity) return {nan_row(), true};
  double sum = 0;
  for (int64_t s = 0; s < call.S; ++s) sum += std::exp(lse(s) - max);
  MergedRow row;
  row.lse = {max + std::log(sum), 0};
  row.lse.error = kTiny + 1 + std::fabs(max) + std::fabs(row.lse.value);
  row.logp = {owners == 1 ? logp(owner) + (lse(owner) - row.lse.value) : -kInfinity,
              std::fabs(logp(owner)) + std::fabs(lse(owner)) + row.lse.error};
  row.entropy = {0, kTiny};
  for (int64_t s = 0; s < call.S && call.shard_entropy.present(); ++s) {
    if (lse(s) == -kInfinity) continue;
    const double entropy = call.shard_entropy.load(s, n);
    const double share = std::exp(lse(s) - max) / sum;
    const double term = entropy - (lse(s) - max - std::log(sum));
    row.entropy.value += share * term;
    // The share follows its exponent, which is off like lse; so are the terms.
    row.entropy.error += share * (std::fabs(term) * (1 + std::fabs(lse(s)) + row.lse.error) + std::fabs(entropy));
    row.entropy.error += share * (std::fabs(lse(s)) + row.lse.error);
  }
  return row;
}

}  // namespace

DataError logp_merge(CallOf<sdk::ops::LogpMerge>& call) {
  DataError first;
  for (int64_t n = 0; n < call.N; ++n) {
    const MergedRow row = merge(call, n);
    if (row.has_no_finite_score) keep_first(first, {kNoFiniteLogit, n, 0});
    put(call.logp, row.logp);
    put(call.lse, row.lse);
    put(call.entropy, row.entropy);
  }
  return first;
}

}  // namespace rlk::golden
