// linear_logp for other kernels that need log-probabilities of hidden states on their way.
#pragma once

#include <rlk/sdk/ops/linear_logp.hpp>

#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {

// sum_v weights[v] z[n, v] of every row n that has scores, on demand.
struct ScoreSums {
  double* sums = nullptr;          // [N]
  const Array* weights = nullptr;  // [V]; 1 without
};

// Outputs may have any floating dtype here. Returns the data error of the lowest bad row; kind 0 when there is none.
DataError linear_logp(const CallOf<sdk::ops::LinearLogp>& call, const Context& context,
                      const ScoreSums& score_sums = {});
int64_t linear_logp_workspace_bytes(const CallOf<sdk::ops::LinearLogp>& call, bool with_score_sums = false);

}  // namespace rlk::cpu
