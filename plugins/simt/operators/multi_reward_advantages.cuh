// Several rewards of each sample, summed and normalised within groups, or the other way round.
#include "../skeleton/groups.cuh"

RLK_SIMT_GROUPS(MultiRewardAdvantages, group_advantages, several_rewards(call))
