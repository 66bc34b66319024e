// Row by row: the maximum of the shards' lse first, then shares relative to it.
#include "core/cpu/logp/logp_merge.hpp"

#include <algorithm>

#include "core/cpu/simd/element.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kGrainNumbers = 2048;  // per task at least

class Kernel {
public:
  Kernel(const LogpMergeArgs& args, FirstBadRow& bad) : args_(args), bad_(bad) {}

  void row(int64_t n) const {
    bool ignored = args_.shards > 1, undefined = false;
    int64_t owners = 0, owner = 0;
    double max = -kInfinity;
    for (int64_t s = 0; s < args_.shards; ++s) {
      const double logp = load(args_.shard_logp, s, n), lse = load(args_.shard_lse, s, n);
      ignored &= logp == 0;
      undefined |= std::isnan(logp) || std::isnan(lse) || lse == kInfinity;
      max = std::max(max, lse);
      if (logp == -kInfinity) continue;
      owner = s;
      ++owners;
    }
    if (ignored) return put(n, 0, 0, 0);
    if (undefined || owners > 1) return put(n, kNan, kNan, kNan);
    if (max == -kInfinity) {
      bad_.report(n);
      return put(n, kNan, kNan, kNan);
    }
    double sum = 0;
    for (int64_t s = 0; s < args_.shards; ++s) sum += std::exp(load(args_.shard_lse, s, n) - max);
    // Shares are taken relative to the maximum: where scores are large, lse has lost the digits that matter.
    const double log_sum = std::log(sum);
    double logp = -kInfinity;
    if (owners == 1) logp = load(args_.shard_logp, owner, n) + (load(args_.shard_lse, owner, n) - max - log_sum);
    put(n, logp, max + log_sum, entropy(n, max, sum));
  }

private:
  double load(const ShardNumbers& numbers, int64_t s, int64_t n) const {
    return load_element(numbers.data, args_.dtype, s * numbers.shard_stride + n * numbers.row_stride);
  }
  double entropy(int64_t n, double max, double sum) const {
    if (args_.shard_entropy.data == nullptr) return 0;
    const double log_sum = std::log(sum);
    double entropy = 0;
    for (int64_t s = 0; s < args_.shards; ++s) {
      const double below_max = load(args_.shard_lse, s, n) - max;
      if (below_max == -kInfinity) continue;
      entropy += std::exp(below_max) / sum * (load(args_.shard_entropy, s, n) - (below_max - log_sum));
    }
    return entropy;
  }
  void put(int64_t n, double logp, double lse, double entropy) const {
    store_element(args_.logp.data, args_.dtype, n * args_.logp.stride, logp);
    if (args_.lse.data != nullptr) store_element(args_.lse.data, args_.dtype, n * args_.lse.stride, lse);
    if (args_.entropy.data != nullptr)
      store_element(args_.entropy.data, args_.dtype, n * args_.entropy.stride, entropy);
  }

  const LogpMergeArgs& args_;
  FirstBadRow& bad_;
};

}  // namespace

DataError logp_merge(const LogpMergeArgs& args, const ParallelFor& hook) {
  FirstBadRow bad;
  const Kernel kernel(args, bad);
  const int64_t grain = std::max<int64_t>(1, kGrainNumbers / std::max<int64_t>(1, args.shards));
  parallel_for(hook, args.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) kernel.row(n);
  });
  if (!bad.any()) return {};
  return {kNoFiniteLogit, bad.row(), 0};
}

}  // namespace rlk::cpu
