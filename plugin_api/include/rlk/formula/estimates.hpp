// Clamps with what they pass of the gradient, and the KL estimates, in fp64: what ratio_kl, policy_loss and value_loss
// agree on.
#if defined(RLK_FORMULA_ESTIMATES) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_ESTIMATES
#undef RLK_FORMULA_ESTIMATES
#else
#define RLK_FORMULA_ESTIMATES
#endif

#include <rlk/formula/above_tangent.hpp>
#include <rlk/formula/clamp.hpp>

RLK_FORMULA_BEGIN

// a b, where a factor of 0 leaves nothing of an infinite number. A NaN stays one.
template <class D, class V>
RLK_FORMULA V times(D /*d*/, V a, V b) {
  const V product = Mul(a, b);
  const auto is_undefined = AndNot(Or(IsNaN(a), IsNaN(b)), IsNaN(product));
  return IfThenZeroElse(is_undefined, product);
}
// What is multiplied by a weight, or by the gradient of a result: what 0 takes out is not looked at.
template <class D, class V>
RLK_FORMULA V unless_zero(D d, V weight, V x) {
  return IfThenZeroElse(Eq(weight, Zero(d)), x);
}
template <class D, class V>
RLK_FORMULA V weighted(D d, V weight, V x) {
  return Mul(weight, unless_zero(d, weight, x));
}

// x within [low, high]; a NaN stays one.
template <class D, class V>
RLK_FORMULA V clamped(D d, V x, double low, double high) {
  return at_most(d, high, at_least(d, low, x));
}

// What that clamp passes of the gradient; a number that is both bounds passes both. A NaN passes all of it: it is not
// outside. A bound of infinity is none.
template <class D, class V>
RLK_FORMULA V clamp_gradient(D d, V x, V low, V high, double at_bound) {
  const V one = number(d, 1.0), part = number(d, at_bound);
  const V at_bounds = Mul(IfThenElse(Eq(x, low), part, one), IfThenElse(Eq(x, high), part, one));
  const V passes = IfThenElse(IsInf(x), one, at_bounds);
  return IfThenZeroElse(Or(Lt(x, low), Gt(x, high)), passes);
}

// A slope behind that clamp; 0 also where the slope is infinite. Mostly there is no clamp.
template <class D, class V>
RLK_FORMULA V clamped_slope(D d, V slope, V x, double low, double high, double at_bound) {
  if (formula::is_no_bound(low) && formula::is_no_bound(high)) return slope;
  const V passes = clamp_gradient(d, x, number(d, low), number(d, high), at_bound);
  return IfThenZeroElse(Eq(passes, Zero(d)), Mul(passes, slope));
}

template <class V>
struct KlEstimate {
  V value, slope;  // F(d), F'(d)
};
// Of d = ref_logp - logp. Kind: an enumeration of the declarations' kl_kind.
template <class D, class Kind, class V>
RLK_FORMULA KlEstimate<V> kl_estimate(D d, Kind kind, V x) {
  switch (kind) {
    case Kind::k1:
      return {Neg(x), number(d, -1.0)};
    case Kind::abs:
      return {Abs(x), IfThenElse(Gt(Abs(x), Zero(d)), CopySign(number(d, 1.0), x), x)};
    case Kind::k2:
      return {Mul(number(d, 0.5), Mul(x, x)), x};
    case Kind::k3:
      break;
  }
  const V power = exp_minus_one(d, x);
  return {above_tangent(d, x, power), power};
}

// Of the gradient of k2 in kl_gradient k2_weighted.
template <class D, class V>
RLK_FORMULA V k2_weight(D d, V log_ratio, double largest) {
  return at_most(d, largest, exp(d, log_ratio));
}

RLK_FORMULA_END
#endif
