// Which settings make a call combine rows although its operator need not? Their units are not batch invariant.
#pragma once

#include "core/conformance/conformance.hpp"

namespace rlk::simple {

inline bool combines_rows(const core::UnitResult& unit) {
  return unit.op == "policy_loss" && unit.feature == "top_entropy_quantile";  // a quantile over the batch
}

}  // namespace rlk::simple
