// From the ABI's parameters to the arguments of the kernels that work on groups of samples. The declarations of these
// operators name the same things with the same ordinals.
#pragma once

#include "core/cpu/advantages/group_advantages.hpp"
#include "core/cpu/plugin/arrays.hpp"

namespace rlk::cpu {

template <class Params>
GroupingArgs::Kind kind_of_groups(const Params& params) {
  return static_cast<GroupingArgs::Kind>(params.grouping);
}

template <class Params>
GroupingArgs grouping_of(const Params& params, int64_t rows, int64_t groups, const rlk_tensor* boundaries,
                         const rlk_tensor* ids) {
  GroupingArgs args;
  args.kind = kind_of_groups(params);
  args.rows = rows;
  args.groups = groups;
  args.samples_per_prompt = params.samples_per_prompt;
  args.group_boundaries = int_array_of(boundaries);
  args.group_ids = int_array_of(ids);
  return args;
}

template <class Params>
GroupAdvantagesArgs normalisation_of(const Params& params) {
  GroupAdvantagesArgs args;
  args.baseline = static_cast<GroupAdvantagesArgs::Baseline>(params.baseline);
  args.scale = static_cast<GroupAdvantagesArgs::Scale>(params.scale);
  args.unbiased = params.std == 0;
  args.additive_eps = params.eps_mode == 0;
  args.eps = params.eps;
  args.raw_singletons = params.singleton == 1;
  return args;
}

}  // namespace rlk::cpu
