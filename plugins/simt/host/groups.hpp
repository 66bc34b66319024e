// The host's side of operators on groups of samples (../skeleton/groups.cuh): what RLK_SIMT_GROUPS says of one becomes
// its implementation, for all floating dtypes and strides.
#pragma once

#include <rlk/sdk/ops/multi_reward_advantages.hpp>
#include <rlk/sdk/ops/resampling_weights.hpp>
#include <rlk/sdk/ops/whiten.hpp>

#include "../skeleton/groups.h"
#include "declared.hpp"

namespace rlk::simt::host {

// A call: absent arguments are null, options numbers of their enumerations.
struct GroupsCall {
  const rlk_tensor* x = nullptr;  // [samples], [samples, rewards], or numbers that are one group
  const rlk_tensor* mask = nullptr;
  const rlk_tensor* weights = nullptr;
  const rlk_tensor* lengths = nullptr;
  const rlk_tensor* baselines = nullptr;
  const rlk_tensor* boundaries = nullptr;
  const rlk_tensor* ids = nullptr;
  const rlk_tensor* mean = nullptr;
  const rlk_tensor* variance = nullptr;
  const rlk_tensor* out = nullptr;
  bool is_matrix = false;   // one group of all numbers,
  bool asks_matrix = true;  // of which something is asked
  bool has_small = false;   // the operator has a kernel of small groups,
  bool has_packed = false;  // or kernels of numbers in packs
  int64_t samples_per_prompt = 0;
  double eps = 0;
  int32_t std = 0, eps_mode = 0, scale = 0, baseline = 0, singleton = 0, rescale = 0, shift_mean = 0, method = 0;
  double power = 0, best_weight = 0, other_weight = 0;
  int32_t combine = simt::kCombineNormal;

  sdk::Dtype dtype() const { return sdk::dtype_of(*x); }
  int64_t rows() const { return x->shape[0]; }
  int64_t columns() const { return x->ndim == 2 ? x->shape[1] : 1; }
  // Rewards that are normalised each.
  int64_t rewards() const { return !is_matrix && combine == simt::kCombineNormal ? columns() : 1; }
  bool asks_all() const noexcept {
    return is_matrix ? mean == nullptr && asks_matrix : scale == simt::kScaleBatch || rescale == simt::kRescaleNonzero;
  }
};

template <class Call>
GroupsCall whitening(const Call& call) {
  GroupsCall groups;
  groups.is_matrix = true;
  groups.has_packed = true;
  groups.x = call.x;
  groups.mask = call.mask;
  groups.mean = call.mean;
  groups.variance = call.variance;
  groups.out = call.y;
  groups.eps = call.params.eps;
  groups.std = static_cast<int32_t>(call.params.std);
  groups.eps_mode = static_cast<int32_t>(call.params.eps_mode);
  groups.shift_mean = static_cast<int32_t>(call.params.shift_mean);
  return groups;
}
template <class Call>
GroupsCall resampling(const Call& call) {
  GroupsCall groups;
  groups.is_matrix = true;
  groups.asks_matrix = call.params.method != decltype(call.params.method)::pow;
  groups.x = call.scores;
  groups.mask = call.mask;
  groups.out = call.weights;
  groups.eps = call.params.eps;
  groups.method = static_cast<int32_t>(call.params.method);
  groups.power = call.params.power;
  groups.best_weight = call.params.best_weight;
  groups.other_weight = call.params.other_weight;
  return groups;
}
// What both operators on rewards have.
template <class Call>
GroupsCall groups_of_rewards(const Call& call) {
  GroupsCall groups;
  groups.x = call.rewards;
  groups.mask = call.mask;
  groups.boundaries = call.group_boundaries;
  groups.ids = call.group_ids;
  groups.out = call.advantages;
  groups.samples_per_prompt = call.params.samples_per_prompt;
  groups.eps = call.params.eps;
  groups.std = static_cast<int32_t>(call.params.std);
  groups.eps_mode = static_cast<int32_t>(call.params.eps_mode);
  groups.scale = static_cast<int32_t>(call.params.scale);
  groups.baseline = static_cast<int32_t>(call.params.baseline);
  groups.singleton = static_cast<int32_t>(call.params.singleton);
  return groups;
}
template <class Call>
GroupsCall normalised_groups(const Call& call) {
  GroupsCall groups = groups_of_rewards(call);
  groups.lengths = call.lengths;
  groups.baselines = call.baselines;
  groups.has_small = true;
  groups.rescale = static_cast<int32_t>(call.params.rescale);
  return groups;
}
template <class Call>
GroupsCall several_rewards(const Call& call) {
  GroupsCall groups = groups_of_rewards(call);
  groups.weights = call.weights;
  groups.combine = static_cast<int32_t>(call.params.combine);
  return groups;
}

struct GroupsKernels {
  const char* image;
  const char* prefix;  // of the kernels' names
};

// The kernel's arguments on a device of such waves; their places in the workspace, when it is there, and the bytes it
// takes.
simt::GroupArgs arguments_of_groups(const GroupsCall& call, int wave);
uint64_t place_groups(const GroupsCall& call, simt::GroupArgs& args, void* workspace);

class GroupsPlan : public KernelPlan {
public:
  static sdk::Support support(const Device& device, const GroupsCall& call);
  GroupsPlan(Device& device, const GroupsKernels& kernels, const GroupsCall& call);

protected:
  void launch(sdk::Stream& stream, const GroupsCall& call, const sdk::Run& run) const;
  uint64_t workspace_of(const GroupsCall& call) const;

private:
  FunctionHandle kernel_, parts_ = nullptr, check_ = nullptr, small_ = nullptr;
  FunctionHandle packed_ = nullptr, packed_parts_ = nullptr;
  int wave_;
};

// Declared: what RLK_SIMT_GROUPS made of an operator.
template <class Declared>
struct Groups : DeclaredBy<Declared, GroupsPlan> {
  static constexpr const char* kName = "groups";
};

}  // namespace rlk::simt::host
