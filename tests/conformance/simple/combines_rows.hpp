// Which settings make a call combine rows although its operator need not? Their units are not batch invariant.
#pragma once

#include "core/conformance/conformance.hpp"

namespace rlk::simple {

// A quantile over the batch, and choices by covariances over it.
inline bool combines_rows(const core::UnitResult& unit) {
  return unit.op == "policy_loss" && (unit.feature == "top_entropy_quantile" || unit.feature == "kind=clip_cov" ||
                                      unit.feature == "kind=kl_cov" || unit.feature.rfind("cov_", 0) == 0);
}

}  // namespace rlk::simple
