// Rewards less a baseline, normalised within groups.
#include "../skeleton/groups.cuh"

RLK_SIMT_GROUPS(GroupAdvantages, group_advantages, normalised_groups(call))
