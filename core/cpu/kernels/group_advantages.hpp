// Rewards normalised within groups of samples of the same prompt. One number per sample, in fp64.
#pragma once

#include "core/cpu/kernels/array.hpp"

namespace rlk::cpu {

struct GroupAdvantagesArgs {
  enum class Grouping { fixed, boundaries, ids } grouping = Grouping::fixed;
  enum class Scale { group, batch, none } scale = Scale::group;
  int64_t rows = 0;
  int64_t groups = 0;              // boundaries
  int64_t samples_per_prompt = 0;  // fixed; 0: all rows
  IntArray group_boundaries;       // [groups + 1]
  IntArray group_ids;              // [rows]
  Array rewards;
  bool unbiased = true;
  bool additive_eps = true;  // else the least standard deviation
  double eps = 1e-6;
  bool leave_one_out = false;
  bool raw_singletons = false;
  Array advantages;
  void* workspace = nullptr;  // group_advantages_workspace_bytes, aligned to 8 bytes
};

int64_t group_advantages_workspace_bytes(GroupAdvantagesArgs::Grouping grouping, int64_t rows);

// Returns the data error of the lowest bad row (ids) or the first bad position (boundaries).
DataError group_advantages(const GroupAdvantagesArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
