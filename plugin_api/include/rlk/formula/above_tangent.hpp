// exp(x) - 1 - x in fp64: the terms of divergences and of the k3 estimate, none of which is negative.
#if defined(RLK_FORMULA_ABOVE_TANGENT) == \
    defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_ABOVE_TANGENT
#undef RLK_FORMULA_ABOVE_TANGENT
#else
#define RLK_FORMULA_ABOVE_TANGENT
#endif

#include <rlk/formula/vocabulary.hpp>

RLK_FORMULA_BEGIN

// Where the difference itself would lose more than 21 of its bits.
constexpr double kNearTangent = 0x1p-10;

// exp(x) - 1 - x for |x| below kNearTangent: its series, of which what is left out is below 2^-48 of the sum.
template <class D, class V>
RLK_FORMULA V above_tangent_near(D d, V x) {
  const V sum = horner(d, x, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
  return Mul(Mul(x, x), sum);
}

// That, given exp(x) - 1; +inf where that is.
template <class D, class V>
RLK_FORMULA V above_tangent(D d, V x, V exp_minus_one) {
  const auto is_infinite = Eq(exp_minus_one, Inf(d));  // where x is, and their difference nothing
  const V far = IfThenElse(is_infinite, exp_minus_one, Sub(exp_minus_one, x));
  return IfThenElse(Lt(Abs(x), number(d, kNearTangent)), above_tangent_near(d, x), far);
}

// The part of one outcome in KL(x || y), x log(x / y), plus y - x, which is 0 over all outcomes: what is off in both
// logarithms alike (a log-sum-exp) then only counts squared.
template <class D, class V>
RLK_FORMULA V divergence_term(D d, V x, V log_x, V y, V log_y) {
  const V zero = Zero(d), difference = Sub(log_y, log_x);
  V far = NegMulAdd(x, difference, Sub(y, x));
  far = IfThenZeroElse(Lt(far, zero), far);  // where y is below what exp keeps
  const auto is_near = Lt(Abs(difference), number(d, kNearTangent));
  const V term = IfThenElse(is_near, Mul(x, above_tangent_near(d, difference)), far);
  return IfThenElse(Eq(x, zero), y, term);
}

RLK_FORMULA_END
#endif
