// Of a backward: where its gradients are the slope of its forward, everything else held. Elsewhere the formula holds
// constant what moves with an input (sg(), the lse of other shards). A header of its own, because few files need it.
#pragma once

#include "core/declaration/declaration.hpp"

namespace rlk::core {

// nullptr where they always are, parameters that only the backward has being at their defaults.
const Expr* slope_when(const OpDecl& backward);

}  // namespace rlk::core
