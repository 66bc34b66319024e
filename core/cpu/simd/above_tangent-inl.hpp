// exp(x) - 1 - x over vectors of fp64: the terms of divergences and of the k3 estimate, none of which is negative.
#if defined(RLK_CPU_ABOVE_TANGENT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ABOVE_TANGENT_INL
#undef RLK_CPU_ABOVE_TANGENT_INL
#else
#define RLK_CPU_ABOVE_TANGENT_INL
#endif

#include "core/cpu/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// Where the difference itself would lose more than 21 of its bits.
constexpr double kNearTangent = 0x1p-10;

// exp(x) - 1 - x for |x| below kNearTangent: its series, of which what is left out is below 2^-48 of the sum.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V above_tangent_near(D d, V x) {
  V sum = hn::MulAdd(hn::Set(d, 1.0 / 120), x, hn::Set(d, 1.0 / 24));
  for (const double factor : {1.0 / 6, 0.5}) sum = hn::MulAdd(sum, x, hn::Set(d, factor));
  return hn::Mul(hn::Mul(x, x), sum);
}

// That, given exp(x) - 1; +inf where that is.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V above_tangent(D d, V x, V exp_minus_one) {
  const auto is_infinite = hn::Eq(exp_minus_one, hn::Inf(d));  // where x is, and their difference nothing
  const V far = hn::IfThenElse(is_infinite, exp_minus_one, hn::Sub(exp_minus_one, x));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, kNearTangent)), above_tangent_near(d, x), far);
}

// The part of one outcome in KL(x || y), x log(x / y), plus y - x, which is 0 over all outcomes: what is off in both
// logarithms alike (a log-sum-exp) then only counts squared.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V divergence_term(D d, V x, V log_x, V y, V log_y) {
  const V zero = hn::Zero(d), difference = hn::Sub(log_y, log_x);
  V far = hn::NegMulAdd(x, difference, hn::Sub(y, x));
  far = hn::IfThenZeroElse(hn::Lt(far, zero), far);  // where y is below what exp keeps
  const auto is_near = hn::Lt(hn::Abs(difference), hn::Set(d, kNearTangent));
  const V term = hn::IfThenElse(is_near, hn::Mul(x, above_tangent_near(d, difference)), far);
  return hn::IfThenElse(hn::Eq(x, zero), y, term);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
