// Rewards less a baseline, normalised within groups: the declaration's formula, fp64.
#include "core/golden/groups.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/optional.hpp"

namespace rlk::golden {

DataError group_advantages(CallOf<sdk::ops::GroupAdvantages>& call) {
  GroupingCall grouping;
  grouping.grouping = call.params.grouping;
  grouping.rows = call.B;
  grouping.samples_per_prompt = call.params.samples_per_prompt;
  grouping.boundaries = call.group_boundaries;
  grouping.ids = call.group_ids;
  std::vector<Tracked> numbers;
  for (int64_t b = 0; b < grouping.rows; ++b) {
    grouping.kept.push_back(is_kept(call.mask, b));
    numbers.emplace_back(call.rewards.load(b));
  }
  DataError error;
  const std::vector<Rows> groups = groups_of(grouping, error);
  const Normalisation how = {call.params, call.lengths, call.baselines};
  for (const Tracked& advantage : normalised(how, grouping, groups, numbers)) put(call.advantages, advantage);
  return error;
}

}  // namespace rlk::golden
