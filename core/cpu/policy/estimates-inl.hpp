// The clamps and KL estimates of the policy's formulas on vectors, and what their parameters mean.
#if defined(RLK_CPU_ESTIMATES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ESTIMATES_INL
#undef RLK_CPU_ESTIMATES_INL
#else
#define RLK_CPU_ESTIMATES_INL
#endif

#include <rlk/sdk/ops/ratio_kl.hpp>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/simd/above_tangent-inl.hpp"

#include <rlk/formula/estimates.hpp>
#endif  // per target
