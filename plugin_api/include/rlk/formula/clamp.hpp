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

// What a clamp of x to [low, high] passes of the gradient; a number that is both bounds passes both. A NaN passes all
// of it: it is not outside. A bound of infinity is none.
RLK_FORMULA_OF_A_CLAMP double clamp_gradient(double x, double low, double high, double at_bound) {
  if (x < low || x > high) return 0;
  if (x == __builtin_huge_val() || x == -__builtin_huge_val()) return 1;
  return (x == low ? at_bound : 1.0) * (x == high ? at_bound : 1.0);
}

}  // namespace rlk::formula
