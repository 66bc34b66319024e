// exp(x) - 1 - x on vectors.
#if defined(RLK_CPU_ABOVE_TANGENT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ABOVE_TANGENT_INL
#undef RLK_CPU_ABOVE_TANGENT_INL
#else
#define RLK_CPU_ABOVE_TANGENT_INL
#endif

#include "core/cpu/simd/formulas-inl.hpp"

#include <rlk/formula/above_tangent.hpp>
#endif  // per target
