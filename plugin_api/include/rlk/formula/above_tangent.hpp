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

RLK_FORMULA_END
#if defined(RLK_FORMULA_LANES)
namespace rlk::formula {

// 2^n, where n is in the low bits of 1.5 2^52 + n.
RLK_FORMULA double power_of_two(double shifted) {
#if defined(__CUDA_ARCH__)
  return __hiloint2double((__double2loint(shifted) + 1023) << 20, 0);
#else
  unsigned long long bits = 0;
  double power = 0;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 1023) << 52;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return power;
#endif
}
// Good to 2^-31, near 0 too: with n the nearest integer to x log2(e), 2^n (2^f - 1) + (2^n - 1).
RLK_FORMULA double exp_minus_one(BriefLongLane d, double x) {
  const double log2_e = 1.4426950408889634, to_integer = 6755399441055744.0;
  const double shifted = MulAdd(x, log2_e, to_integer), f = MulAdd(x, log2_e, -Sub(shifted, to_integer));
  const double rest =
      Mul(f, horner(d, f, 1.5297323760701075e-05, 0.0001546144469856913, 0.001333350238616277, 0.009618056678524637,
                    0.055504108839096185, 0.24022650922288757, 0.6931471805599453));
  const double whole = power_of_two(shifted), sum = MulAdd(whole, rest, Add(whole, -1));
  return ::fabs(x) < 700 ? sum : x < 0 ? -1 : x + __builtin_huge_val();
}
// exp(x) - 1 - x, good to 2^-29, given exp(x) - 1.
RLK_FORMULA double above_tangent(BriefLongLane d, double x, double exp_minus_one) {
  const double near = Mul(Mul(x, x), horner(d, x, 2.4860731885840675e-05, 0.00019900428151915095, 0.0013888852650225144,
                                            0.008333297083738308, 0.041666666722163556, 0.16666666722181583, 0.5));
  const double far = exp_minus_one == __builtin_huge_val() ? exp_minus_one : Sub(exp_minus_one, x);
  return ::fabs(x) < 0.35 ? near : far;
}

}  // namespace rlk::formula
#endif
RLK_FORMULA_BEGIN

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
