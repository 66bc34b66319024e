// Clamps, and what they pass of the gradient, a choice of the caller's: versions of torch differ at the bounds.
#pragma once

#include <rlk/formula/clamp.hpp>

namespace rlk::cpu {

using formula::bound_or_none;
using formula::clamp_gradient;
using formula::gradient_at_bound;

}  // namespace rlk::cpu
