// Clamps with what they pass of the gradient, and the KL estimates, over vectors of fp64: what ratio_kl, policy_loss
// and value_loss agree on.
#if defined(RLK_CPU_ESTIMATES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ESTIMATES_INL
#undef RLK_CPU_ESTIMATES_INL
#else
#define RLK_CPU_ESTIMATES_INL
#endif

#include <rlk/sdk/ops/ratio_kl.hpp>

#include <cmath>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/simd/above_tangent-inl.hpp"
#include "core/cpu/simd/functions-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// a b, where a factor of 0 leaves nothing of an infinite number. A NaN stays one.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V times(D /*d*/, V a, V b) {
  const V product = hn::Mul(a, b);
  const auto is_undefined = hn::AndNot(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::IsNaN(product));
  return hn::IfThenZeroElse(is_undefined, product);
}
// What is multiplied by a weight, or by the gradient of a result: what 0 takes out is not looked at.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V unless_zero(D d, V weight, V x) {
  return hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), x);
}
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V weighted(D d, V weight, V x) {
  return hn::Mul(weight, unless_zero(d, weight, x));
}

// x within [low, high]; a NaN stays one.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V clamped(D d, V x, double low, double high) {
  return at_most(d, high, at_least(d, low, x));
}

// What that clamp passes of the gradient; a number that is both bounds passes both. A NaN passes all of it: it is not
// outside. A bound of infinity is none.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V clamp_gradient(D d, V x, V low, V high, double at_bound) {
  const V one = hn::Set(d, 1.0), part = hn::Set(d, at_bound);
  const V at_bounds = hn::Mul(hn::IfThenElse(hn::Eq(x, low), part, one), hn::IfThenElse(hn::Eq(x, high), part, one));
  const V passes = hn::IfThenElse(hn::IsInf(x), one, at_bounds);
  return hn::IfThenZeroElse(hn::Or(hn::Lt(x, low), hn::Gt(x, high)), passes);
}

// A slope behind that clamp; 0 also where the slope is infinite. Mostly there is no clamp.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V clamped_slope(D d, V slope, V x, double low, double high, double at_bound) {
  if (std::isinf(low) && std::isinf(high)) return slope;
  const V passes = clamp_gradient(d, x, hn::Set(d, low), hn::Set(d, high), at_bound);
  return hn::IfThenZeroElse(hn::Eq(passes, hn::Zero(d)), hn::Mul(passes, slope));
}

template <class V>
struct KlEstimate {
  V value, slope;  // F(d), F'(d)
};
// Of d = ref_logp - logp.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE KlEstimate<V> kl_estimate(D d, sdk::ops::ratio_kl::KlKind kind, V x) {
  using sdk::ops::ratio_kl::KlKind;
  switch (kind) {
    case KlKind::k1:
      return {hn::Neg(x), hn::Set(d, -1.0)};
    case KlKind::abs:
      return {hn::Abs(x), hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Zero(d)), hn::CopySign(hn::Set(d, 1.0), x), x)};
    case KlKind::k2:
      return {hn::Mul(hn::Set(d, 0.5), hn::Mul(x, x)), x};
    case KlKind::k3:
      break;
  }
  const V power = exp_minus_one(d, x);
  return {above_tangent(d, x, power), power};
}

// Of the gradient of k2 in kl_gradient k2_weighted.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V k2_weight(D d, V log_ratio, double largest) {
  return at_most(d, largest, exp(d, log_ratio));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
