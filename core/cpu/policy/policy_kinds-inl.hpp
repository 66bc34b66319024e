// The policy loss of tokens on vectors of fp64.
#if defined(RLK_CPU_POLICY_KINDS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_POLICY_KINDS_INL
#undef RLK_CPU_POLICY_KINDS_INL
#else
#define RLK_CPU_POLICY_KINDS_INL
#endif

#include <hwy/contrib/math/math-inl.h>

#include "core/cpu/policy/estimates-inl.hpp"
#include "core/cpu/policy/policy_batch.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// log(x), -inf at 0; NaN for what is below 0, and for a NaN.
template <class D, class V = hn::VFromD<D>>
HWY_NOINLINE V log_of(D d, V x) {
  const V zero = hn::Zero(d), infinity = hn::Inf(d);
  const auto is_usual = hn::And(hn::Gt(x, zero), hn::Lt(x, infinity));
  const V usual = hn::Log(d, hn::IfThenElse(is_usual, x, hn::Set(d, 1.0)));
  const V unusual =
      hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), hn::IfThenElse(hn::Eq(x, infinity), x, hn::NaN(d)));
  return hn::IfThenElse(is_usual, usual, unusual);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#include <rlk/formula/policy_loss.hpp>
#endif  // per target
