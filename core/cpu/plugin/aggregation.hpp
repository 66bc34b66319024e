// The aggregation that value_loss and its backward share.
#pragma once

#include <rlk/sdk/ops.hpp>

#include "core/cpu/policy/value_loss.hpp"

namespace rlk::cpu {

static_assert(static_cast<int>(Aggregation::none) == RLK_VALUE_LOSS_AGGREGATION_NONE);
static_assert(static_cast<int>(Aggregation::none) == RLK_VALUE_LOSS_BACKWARD_AGGREGATION_NONE);

template <class Params>
AggregationOptions aggregation_of(const Params& params) {
  return {static_cast<Aggregation>(params.aggregation), params.denominator,
          params.exclude_empty_sequences == RLK_VALUE_LOSS_EXCLUDE_EMPTY_SEQUENCES_ON, params.seq_denominator_floor};
}

}  // namespace rlk::cpu
