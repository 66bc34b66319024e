// The rewards go through group_advantages: their sum once, or each of them as a column.
#include "core/cpu/advantages/multi_reward_advantages.hpp"

#include <algorithm>

namespace rlk::cpu {
namespace {

double weight_of(const MultiRewardArgs& args, int64_t k) {
  return args.weights.present() ? args.weights.get(k) : 1.0;
}

// A sample counts when it has a reward.
DataError sum_then_normalize(const MultiRewardArgs& args, GroupAdvantagesArgs group, double* sums, uint8_t* counts,
                             const ParallelFor& hook) {
  parallel_for(hook, group.grouping.rows, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      sums[row] = counts[row] = 0;
      for (int64_t k = 0; k < args.kinds; ++k) {
        if (!args.mask.keeps(row, k)) continue;
        sums[row] += weight_of(args, k) * args.rewards.get(row, k);
        counts[row] = 1;
      }
    }
  });
  group.grouping.mask = {counts, {1, 0}};
  group.rewards = Array::of(sums);
  group.advantages = args.advantages;
  return group_advantages(group, hook);
}

DataError normalize_then_sum(const MultiRewardArgs& args, GroupAdvantagesArgs group, double* sums, double* own,
                             const ParallelFor& hook) {
  const int64_t rows = group.grouping.rows;
  DataError first;
  std::fill(sums, sums + rows, 0.0);
  for (int64_t k = 0; k < args.kinds; ++k) {
    group.rewards = args.rewards.column(k);
    if (args.mask.data != nullptr) {
      group.grouping.mask = {args.mask.data + k * args.mask.strides[1], {args.mask.strides[0], 0}};
    }
    group.advantages = Array::of(own);
    const DataError error = group_advantages(group, hook);
    if (error.kind != kNoDataError && (first.kind == kNoDataError || error.row < first.row)) first = error;
    for (int64_t row = 0; row < rows; ++row) {
      if (args.mask.keeps(row, k)) sums[row] += weight_of(args, k) * own[row];
    }
  }
  for (int64_t row = 0; row < rows; ++row) args.advantages.put(row, sums[row]);
  return first;
}

}  // namespace

int64_t multi_reward_workspace_bytes(GroupingArgs::Kind kind, int64_t rows) {
  return groups_workspace_bytes(kind, rows) + 2 * rows * static_cast<int64_t>(sizeof(double));
}

DataError multi_reward_advantages(const MultiRewardArgs& args, const ParallelFor& hook) {
  GroupAdvantagesArgs group = args.group;
  const int64_t rows = group.grouping.rows;
  if (rows == 0) {  // what is said of boundaries still holds
    group.rewards = group.advantages = {};
    return group_advantages(group, hook);
  }
  auto* sums = static_cast<double*>(args.workspace);
  double* own = sums + rows;
  group.grouping.workspace = own + rows;
  if (args.normalize_first) return normalize_then_sum(args, group, sums, own, hook);
  return sum_then_normalize(args, group, sums, reinterpret_cast<uint8_t*>(own), hook);
}

}  // namespace rlk::cpu
