// Several rewards per sample: the declaration's formula, fp64.
#include <rlk/ops/multi_reward_advantages.h>

#include "core/golden/groups.hpp"

namespace rlk::golden {
namespace {

using Numbers = std::vector<Tracked>;

Normalisation normalisation_of(const rlk_multi_reward_advantages_params& params) {
  Normalisation how;
  how.baseline = static_cast<Normalisation::Baseline>(params.baseline);
  how.scale = static_cast<Normalisation::Scale>(params.scale);
  how.unbiased = params.std == RLK_MULTI_REWARD_ADVANTAGES_STD_UNBIASED;
  how.additive_eps = params.eps_mode == RLK_MULTI_REWARD_ADVANTAGES_EPS_MODE_ADDITIVE;
  how.eps = params.eps;
  how.raw_singletons = params.singleton == RLK_MULTI_REWARD_ADVANTAGES_SINGLETON_RAW;
  return how;
}

}  // namespace

Answer answer_multi_reward_advantages(const Call& call) {
  const auto& params = call.params_as<rlk_multi_reward_advantages_params>();
  const View& rewards = call[RLK_MULTI_REWARD_ADVANTAGES_IN_REWARDS];
  const View& weights = call[RLK_MULTI_REWARD_ADVANTAGES_IN_WEIGHTS];
  const View& mask = call[RLK_MULTI_REWARD_ADVANTAGES_IN_MASK];
  const int64_t rows = rewards.shape[0], kinds = rewards.shape[1];
  const auto has = [&](int64_t b, int64_t k) { return !mask.present() || mask.load_int(b, k) != 0; };
  const auto weight = [&](int64_t k) { return Tracked(weights.present() ? weights.load(k) : 1.0); };

  GroupingCall grouping;
  grouping.grouping = static_cast<Grouping>(params.grouping);
  grouping.rows = rows;
  grouping.samples_per_prompt = params.samples_per_prompt;
  grouping.boundaries = call[RLK_MULTI_REWARD_ADVANTAGES_IN_GROUP_BOUNDARIES];
  grouping.ids = call[RLK_MULTI_REWARD_ADVANTAGES_IN_GROUP_IDS];
  const Normalisation how = normalisation_of(params);
  Answer answer;
  answer.outputs.resize(RLK_MULTI_REWARD_ADVANTAGES_N_OUTPUTS);
  const auto normalise = [&](const Numbers& numbers) {
    DataError error;
    const std::vector<Rows> groups = groups_of(grouping, error);
    const bool earlier = answer.error.kind == kNoDataError || error.row < answer.error.row;
    if (error.kind != kNoDataError && earlier) answer.error = error;
    return normalised(how, grouping, groups, numbers);
  };

  Numbers advantages;
  if (params.combine == RLK_MULTI_REWARD_ADVANTAGES_COMBINE_SUM_THEN_NORMALIZE) {
    Numbers sums;
    for (int64_t b = 0; b < rows; ++b) {
      bool any = false;
      TrackedSum sum;
      for (int64_t k = 0; k < kinds; ++k) {
        any |= has(b, k);
        if (has(b, k)) sum.add(weight(k) * Tracked(rewards.load(b, k)));
      }
      grouping.kept.push_back(any);
      sums.push_back(sum.total());
    }
    advantages = normalise(sums);
  } else {
    std::vector<TrackedSum> sums(static_cast<size_t>(rows));
    for (int64_t k = 0; k < kinds; ++k) {
      Numbers column;
      grouping.kept.clear();
      for (int64_t b = 0; b < rows; ++b) {
        column.emplace_back(rewards.load(b, k));
        grouping.kept.push_back(has(b, k));
      }
      const Numbers own = normalise(column);
      for (size_t b = 0; b < own.size(); ++b) {
        if (grouping.kept[b]) sums[b].add(weight(k) * own[b]);
      }
    }
    for (const TrackedSum& sum : sums) advantages.push_back(sum.total());
  }
  for (const Tracked& advantage : advantages)
    put(answer.outputs[RLK_MULTI_REWARD_ADVANTAGES_OUT_ADVANTAGES], advantage);
  return answer;
}

}  // namespace rlk::golden
