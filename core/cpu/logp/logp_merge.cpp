// One answer of logp from the answers of vocabulary shards. Row by row: the maximum of the shards' lse first, then
// shares relative to it. One number per shard and row, hence plain fp64.
#include <rlk/sdk/ops/logp_merge.hpp>

#include <algorithm>

#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::LogpMerge>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kGrainNumbers = 2048;  // per task at least

void put(const Call& call, int64_t n, double logp, double lse, double entropy) {
  call.logp.put(n, logp);
  if (call.lse.present()) call.lse.put(n, lse);
  if (call.entropy.present()) call.entropy.put(n, entropy);
}

double entropy_of(const Call& call, int64_t n, double max, double sum) {
  if (!call.shard_entropy.present()) return 0;
  const double log_sum = std::log(sum);
  double entropy = 0;
  for (int64_t s = 0; s < call.S; ++s) {
    const double below_max = call.shard_lse.get(s, n) - max;
    if (below_max == -kInfinity) continue;
    entropy += std::exp(below_max) / sum * (call.shard_entropy.get(s, n) - (below_max - log_sum));
  }
  return entropy;
}

void merge_row(const Call& call, int64_t n, FirstBadRow& bad) {
  bool ignored = call.S > 1, undefined = false;
  int64_t owners = 0, owner = 0;
  double max = -kInfinity;
  for (int64_t s = 0; s < call.S; ++s) {
    const double logp = call.shard_logp.get(s, n), lse = call.shard_lse.get(s, n);
    ignored &= logp == 0;
    undefined |= std::isnan(logp) || std::isnan(lse) || lse == kInfinity;
    max = std::max(max, lse);
    if (logp == -kInfinity) continue;
    owner = s;
    ++owners;
  }
  if (ignored) return put(call, n, 0, 0, 0);
  if (undefined || owners > 1) return put(call, n, kNan, kNan, kNan);
  if (max == -kInfinity) {
    bad.report(n);
    return put(call, n, kNan, kNan, kNan);
  }
  double sum = 0;
  for (int64_t s = 0; s < call.S; ++s) sum += std::exp(call.shard_lse.get(s, n) - max);
  // Shares are taken relative to the maximum: where scores are large, lse has lost the digits that matter.
  const double log_sum = std::log(sum);
  double logp = -kInfinity;
  if (owners == 1) logp = call.shard_logp.get(owner, n) + (call.shard_lse.get(owner, n) - max - log_sum);
  put(call, n, logp, max + log_sum, entropy_of(call, n, max, sum));
}

DataError logp_merge(const Call& call, const Context& context) {
  FirstBadRow bad;
  const int64_t grain = std::max<int64_t>(1, kGrainNumbers / call.S);
  parallel_for(context.parallel, call.N, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) merge_row(call, n, bad);
  });
  return bad.any() ? DataError{kNoFiniteLogit, bad.row(), 0} : DataError{};
}

double operations(const Call& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.S) * 200;
}

}  // namespace

RLK_CPU_KERNEL(LogpMerge, .run = logp_merge, .operations = operations);

}  // namespace rlk::cpu
