// Rewards less a baseline, normalised within groups of samples of the same prompt. One number per sample, in fp64.
#pragma once

#include <rlk/sdk/ops/group_advantages.hpp>

#include "core/cpu/advantages/groups.hpp"
#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {

// The kernel, which other operators call too. A row that the mask leaves out has advantage 0. Returns the data error of
// the lowest bad row (ids) or the first bad position (boundaries). The workspace is groups_workspace_bytes.
DataError group_advantages(const CallOf<sdk::ops::GroupAdvantages>& call, const Context& context);

}  // namespace rlk::cpu
