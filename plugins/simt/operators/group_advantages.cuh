// Rewards less a baseline, normalised within groups.
#include "../skeleton/small_groups.cuh"

RLK_SIMT_GROUPS(GroupAdvantages, group_advantages, normalised_groups(call))
RLK_SIMT_SMALL_GROUPS(GroupAdvantages)
