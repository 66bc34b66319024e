// Rewards less a baseline, normalised within groups of samples of the same prompt. One number per sample, in fp64.
#pragma once

#include "core/cpu/advantages/groups.hpp"

namespace rlk::cpu {

struct GroupAdvantagesArgs {
  GroupingArgs grouping;  // a row that its mask leaves out has advantage 0
  enum class Baseline { mean, rloo, opo, given, second_best } baseline = Baseline::mean;
  enum class Scale { group, batch, none } scale = Scale::group;
  Array rewards;
  IntArray lengths;  // opo
  Array baselines;   // given
  bool unbiased = true;
  bool additive_eps = true;  // else the least standard deviation
  double eps = 1e-6;
  bool raw_singletons = false;
  bool rescale_nonzero = false;
  Array advantages;
};

// Returns the data error of the lowest bad row (ids) or the first bad position (boundaries).
DataError group_advantages(const GroupAdvantagesArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
