// Several rewards of each sample, summed and normalised within groups, or the other way round, in fp64. The rewards go
// through group_advantages: their sum once, or each of them as a column.
#include <rlk/sdk/ops/multi_reward_advantages.hpp>

#include <algorithm>

#include "core/cpu/advantages/group_advantages.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

namespace op = sdk::ops::multi_reward_advantages;
using Call = CallOf<sdk::ops::MultiRewardAdvantages>;
using GroupCall = CallOf<sdk::ops::GroupAdvantages>;

double weight_of(const Call& call, int64_t k) {
  return call.weights.present() ? call.weights.get(k) : 1.0;
}

// Without rewards, mask and advantages.
GroupCall group_of(const Call& call) {
  GroupCall group;
  group.group_boundaries = call.group_boundaries;
  group.group_ids = call.group_ids;
  group.B = call.B;
  group.G = call.G;
  group.params.grouping = call.params.grouping;
  group.params.samples_per_prompt = call.params.samples_per_prompt;
  group.params.std = call.params.std;
  group.params.eps_mode = call.params.eps_mode;
  group.params.eps = call.params.eps;
  group.params.scale = call.params.scale;
  if (call.params.baseline == op::Baseline::rloo) group.params.baseline = sdk::ops::group_advantages::Baseline::rloo;
  group.params.singleton = call.params.singleton;
  return group;
}

// A sample counts when it has a reward.
DataError sum_then_normalize(const Call& call, double* sums, uint8_t* counts, const Context& context) {
  parallel_for(context.parallel, call.B, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      sums[row] = counts[row] = 0;
      for (int64_t k = 0; k < call.K; ++k) {
        if (!call.mask.keeps(row, k)) continue;
        sums[row] += weight_of(call, k) * call.rewards.get(row, k);
        counts[row] = 1;
      }
    }
  });
  GroupCall group = group_of(call);
  group.mask = Array::vector(counts, Dtype::u8);
  group.rewards = Array::of(sums);
  group.advantages = call.advantages;
  return group_advantages(group, context);
}

DataError normalize_then_sum(const Call& call, double* sums, double* own, const Context& context) {
  DataError first;
  std::fill(sums, sums + call.B, 0.0);
  for (int64_t k = 0; k < call.K; ++k) {
    GroupCall group = group_of(call);
    group.rewards = call.rewards.column(k);
    if (call.mask.present()) group.mask = call.mask.column(k);
    group.advantages = Array::of(own);
    const DataError error = group_advantages(group, context);
    if (error.kind != kNoDataError && (first.kind == kNoDataError || error.row < first.row)) first = error;
    for (int64_t row = 0; row < call.B; ++row) {
      if (call.mask.keeps(row, k)) sums[row] += weight_of(call, k) * own[row];
    }
  }
  for (int64_t row = 0; row < call.B; ++row) call.advantages.put(row, sums[row]);
  return first;
}

DataError multi_reward_advantages(const Call& call, const Context& context) {
  if (call.B == 0) return group_advantages(group_of(call), context);  // what is said of boundaries still holds
  auto* sums = static_cast<double*>(context.workspace);
  double* own = sums + call.B;
  const Context of_groups = {context.parallel, own + call.B};
  if (call.params.combine == op::Combine::normalize_then_sum) return normalize_then_sum(call, sums, own, of_groups);
  return sum_then_normalize(call, sums, reinterpret_cast<uint8_t*>(own), of_groups);
}

int64_t multi_reward_advantages_workspace(const Call& call) {
  return groups_workspace_bytes(call.params.grouping, call.B) + 2 * call.B * static_cast<int64_t>(sizeof(double));
}

double multi_reward_advantages_operations(const Call& call) {
  return static_cast<double>(call.B) * static_cast<double>(call.K) * 1000;
}

}  // namespace

RLK_CPU_KERNEL(MultiRewardAdvantages, .run = multi_reward_advantages, .operations = multi_reward_advantages_operations,
               .workspace_bytes = multi_reward_advantages_workspace);

}  // namespace rlk::cpu
