// Clamps as parameters say them: plain functions of one number, which need no vectors.
#pragma once

#if defined(RLK_FORMULA)
#define RLK_FORMULA_OF_A_CLAMP RLK_FORMULA
#else
#define RLK_FORMULA_OF_A_CLAMP inline
#endif

namespace rlk::formula {

// A bound of which 0 means none.
RLK_FORMULA_OF_A_CLAMP double bound_or_none(double bound) {
  return bound > 0 ? bound : __builtin_huge_val();
}
RLK_FORMULA_OF_A_CLAMP bool is_no_bound(double bound) {
  return bound == __builtin_huge_val() || bound == -__builtin_huge_val();
}

// What a clamp passes of the gradient where a number is a bound.
template <class ClampGradient>
RLK_FORMULA_OF_A_CLAMP double gradient_at_bound(ClampGradient rule) {
  return rule == ClampGradient::zero ? 0.0 : rule == ClampGradient::half ? 0.5 : 1.0;
}

}  // namespace rlk::formula
