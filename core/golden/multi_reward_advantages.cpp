// Several rewards per sample: the declaration's formula, fp64.
#include <rlk/sdk/ops/multi_reward_advantages.hpp>

#include "core/golden/groups.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/optional.hpp"

namespace rlk::golden {
namespace {

using Numbers = std::vector<Tracked>;

namespace op = sdk::ops::multi_reward_advantages;

Normalisation normalisation_of(const op::Params& params) {
  Normalisation how;
  if (params.baseline == op::Baseline::rloo) how.params.baseline = sdk::ops::group_advantages::Baseline::rloo;
  how.params.scale = params.scale;
  how.params.std = params.std;
  how.params.eps_mode = params.eps_mode;
  how.params.eps = params.eps;
  how.params.singleton = params.singleton;
  return how;
}

}  // namespace

DataError multi_reward_advantages(CallOf<sdk::ops::MultiRewardAdvantages>& call) {
  const auto has = [&](int64_t b, int64_t k) { return is_kept(call.mask, b, k); };
  const auto weight = [&](int64_t k) { return Tracked(call.weights.present() ? call.weights.load(k) : 1.0); };

  GroupingCall grouping;
  grouping.grouping = call.params.grouping;
  grouping.rows = call.B;
  grouping.samples_per_prompt = call.params.samples_per_prompt;
  grouping.boundaries = call.group_boundaries;
  grouping.ids = call.group_ids;
  const Normalisation how = normalisation_of(call.params);
  DataError first;
  const auto normalise = [&](const Numbers& numbers) {
    DataError error;
    const std::vector<Rows> groups = groups_of(grouping, error);
    const bool earlier = first.kind == kNoDataError || error.row < first.row;
    if (error.kind != kNoDataError && earlier) first = error;
    return normalised(how, grouping, groups, numbers);
  };

  Numbers advantages;
  if (call.params.combine == op::Combine::sum_then_normalize) {
    Numbers sums;
    for (int64_t b = 0; b < call.B; ++b) {
      bool any = false;
      TrackedSum sum;
      for (int64_t k = 0; k < call.K; ++k) {
        any |= has(b, k);
        if (has(b, k)) sum.add(weight(k) * Tracked(call.rewards.load(b, k)));
      }
      grouping.kept.push_back(any);
      sums.push_back(sum.total());
    }
    advantages = normalise(sums);
  } else {
    std::vector<TrackedSum> sums(static_cast<size_t>(call.B));
    for (int64_t k = 0; k < call.K; ++k) {
      Numbers column;
      grouping.kept.clear();
      for (int64_t b = 0; b < call.B; ++b) {
        column.emplace_back(call.rewards.load(b, k));
        grouping.kept.push_back(has(b, k));
      }
      const Numbers own = normalise(column);
      for (size_t b = 0; b < own.size(); ++b) {
        if (grouping.kept[b]) sums[b].add(weight(k) * own[b]);
      }
    }
    for (const TrackedSum& sum : sums) advantages.push_back(sum.total());
  }
  for (const Tracked& advantage : advantages) put(call.advantages, advantage);
  return first;
}

}  // namespace rlk::golden
