// Rewards less a baseline, normalised within groups: the declaration's formula, fp64.
#include <rlk/ops/group_advantages.h>

#include "core/golden/groups.hpp"

namespace rlk::golden {

Answer answer_group_advantages(const Call& call) {
  const auto& params = call.params_as<rlk_group_advantages_params>();
  const View &rewards = call[RLK_GROUP_ADVANTAGES_IN_REWARDS], &mask = call[RLK_GROUP_ADVANTAGES_IN_MASK];
  GroupingCall grouping;
  grouping.grouping = static_cast<Grouping>(params.grouping);
  grouping.rows = rewards.shape[0];
  grouping.samples_per_prompt = params.samples_per_prompt;
  grouping.boundaries = call[RLK_GROUP_ADVANTAGES_IN_GROUP_BOUNDARIES];
  grouping.ids = call[RLK_GROUP_ADVANTAGES_IN_GROUP_IDS];
  std::vector<Tracked> numbers;
  for (int64_t b = 0; b < grouping.rows; ++b) {
    grouping.kept.push_back(!mask.present() || mask.load_int(b) != 0);
    numbers.emplace_back(rewards.load(b));
  }
  Normalisation how;
  how.baseline = static_cast<Normalisation::Baseline>(params.baseline);
  how.scale = static_cast<Normalisation::Scale>(params.scale);
  how.unbiased = params.std == RLK_GROUP_ADVANTAGES_STD_UNBIASED;
  how.additive_eps = params.eps_mode == RLK_GROUP_ADVANTAGES_EPS_MODE_ADDITIVE;
  how.eps = params.eps;
  how.raw_singletons = params.singleton == RLK_GROUP_ADVANTAGES_SINGLETON_RAW;
  how.rescale_nonzero = params.rescale == RLK_GROUP_ADVANTAGES_RESCALE_NONZERO;
  how.lengths = call[RLK_GROUP_ADVANTAGES_IN_LENGTHS];
  how.baselines = call[RLK_GROUP_ADVANTAGES_IN_BASELINES];

  Answer answer;
  answer.outputs.resize(RLK_GROUP_ADVANTAGES_N_OUTPUTS);
  const std::vector<Rows> groups = groups_of(grouping, answer.error);
  for (const Tracked& advantage : normalised(how, grouping, groups, numbers)) {
    put(answer.outputs[RLK_GROUP_ADVANTAGES_OUT_ADVANTAGES], advantage);
  }
  return answer;
}

}  // namespace rlk::golden
