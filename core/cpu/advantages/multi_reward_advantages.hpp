// Several rewards of each sample, summed and normalised within groups, or the other way round. In fp64.
#pragma once

#include "core/cpu/advantages/group_advantages.hpp"

namespace rlk::cpu {

struct MultiRewardArgs {
  GroupAdvantagesArgs group;  // without rewards, mask and advantages
  int64_t kinds = 0;
  Array rewards;  // [rows, kinds]
  Array weights;  // [kinds], optional
  Mask mask;      // [rows, kinds], optional
  bool normalize_first = false;
  Array advantages;           // [rows]
  void* workspace = nullptr;  // multi_reward_workspace_bytes, aligned to 8 bytes; the groups' own is in it
};

int64_t multi_reward_workspace_bytes(GroupingArgs::Kind kind, int64_t rows);

DataError multi_reward_advantages(const MultiRewardArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
