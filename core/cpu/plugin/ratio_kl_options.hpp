// The options that ratio_kl and its relatives share.
#pragma once

#include <rlk/sdk/ops.hpp>

#include "core/cpu/kernels/ratio_kl.hpp"

namespace rlk::cpu {

static_assert(static_cast<int>(KlKind::k3_plus) == RLK_RATIO_KL_KL_KIND_K3_PLUS);
static_assert(static_cast<int>(KlKind::k3_plus) == RLK_RATIO_KL_BACKWARD_KL_KIND_K3_PLUS);
static_assert(static_cast<int>(KlKind::k3_plus) == RLK_LOGITS_RATIO_KL_KL_KIND_K3_PLUS);
static_assert(static_cast<int>(KlKind::k3_plus) == RLK_LOGITS_RATIO_KL_BACKWARD_KL_KIND_K3_PLUS);

template <class Params>
RatioKlOptions ratio_kl_options(const Params& params) {
  return {static_cast<KlKind>(params.kl_kind), params.kl_weight == RLK_RATIO_KL_KL_WEIGHT_RATIO, params.diff_clamp,
          params.value_clamp, params.log_ratio_clamp};
}

}  // namespace rlk::cpu
