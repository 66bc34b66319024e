// The options that ratio_kl and its relatives share.
#pragma once

#include <rlk/sdk/ops.hpp>

#include "core/cpu/policy/ratio_kl.hpp"

namespace rlk::cpu {

static_assert(static_cast<int>(KlKind::k3) == RLK_RATIO_KL_KL_KIND_K3);
static_assert(static_cast<int>(KlKind::k3) == RLK_RATIO_KL_BACKWARD_KL_KIND_K3);
static_assert(static_cast<int>(KlKind::k3) == RLK_LOGITS_RATIO_KL_KL_KIND_K3);
static_assert(static_cast<int>(KlKind::k3) == RLK_LOGITS_RATIO_KL_BACKWARD_KL_KIND_K3);

template <class Params>
RatioKlOptions ratio_kl_options(const Params& params) {
  RatioKlOptions options = {static_cast<KlKind>(params.kl_kind), params.kl_weight == RLK_RATIO_KL_KL_WEIGHT_RATIO,
                            params.diff_clamp, params.value_clamp, params.log_ratio_clamp};
  if constexpr (requires { params.kl_gradient; }) {
    options.k2_gradient = params.kl_gradient == RLK_RATIO_KL_BACKWARD_KL_GRADIENT_K2;
  }
  return options;
}

}  // namespace rlk::cpu
