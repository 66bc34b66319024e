// Advantages of the groups of a GRPO batch.
#pragma once

#include "core/cpu/kernels/grpo_loss.hpp"

namespace rlk::cpu {

// The data error of group_boundaries; kind 0 when there is none.
DataError check_groups(const GrpoBatch& batch);
// Writes [sequences] advantages. Groups without variance get exactly 0.
void group_advantages(const GrpoBatch& batch, double* advantages);

}  // namespace rlk::cpu
