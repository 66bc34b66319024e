// Importance ratio and KL estimate of every token, and their gradient, in fp64, one pass over memory.
#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/policy/ratio_kl.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/policy/estimates-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
using sdk::ops::ratio_kl::KlWeight;
using sdk::ops::ratio_kl_backward::KlGradient;
using RatioKlForward = CallOf<sdk::ops::RatioKl>;
using RatioKlBackward = CallOf<sdk::ops::RatioKlBackward>;

// What the formula takes of a token: logp, old_logp, ref_logp, mask.
template <class Call>
std::array<Array, 4> numbers_of(const Call& call) {
  return from(call.logp, or_zero(call.old_logp), or_zero(call.ref_logp), or_one(call.mask));
}

// Without old_logp it is logp itself, its gradient stopped; 1 times a NaN is a NaN.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V log_ratio(D /*d*/, bool has_old, V logp, V old_logp) {
  return has_old ? hn::Sub(logp, old_logp) : hn::IfThenElseZero(hn::IsNaN(logp), logp);
}

void ratio_kl(const RatioKlForward& call, const Context& context) {
  const auto& params = call.params;
  const bool has_old = call.old_logp.present();
  const bool by_ratio = params.kl_weight == KlWeight::ratio;
  const double x_bound = bound_or_none(params.log_ratio_clamp), d_bound = bound_or_none(params.diff_clamp);
  const double bound = bound_or_none(params.value_clamp), masked_ratio = params.masked_ratio;
  const auto kind = params.kl_kind;
  const auto ratio_of = [=](auto d, auto logp, auto old_logp, auto /*ref*/, auto mask) HWY_ATTR {
    const auto ratio = exp(d, clamped(d, log_ratio(d, has_old, logp, old_logp), -x_bound, x_bound));
    return hn::IfThenElse(hn::Ne(mask, hn::Zero(d)), ratio, hn::Set(d, masked_ratio));
  };
  const auto kl_of = [=](auto d, auto logp, auto old_logp, auto ref_logp, auto mask) HWY_ATTR {
    auto kl = kl_estimate(d, kind, clamped(d, hn::Sub(ref_logp, logp), -d_bound, d_bound)).value;
    if (by_ratio) kl = times(d, exp(d, log_ratio(d, has_old, logp, old_logp)), kl);
    return if_kept(d, mask, clamped(d, kl, -bound, bound));
  };
  if (!call.kl.present()) return map<double>(context, to(call.ratio), numbers_of(call), ratio_of);
  map<double>(context, to(call.ratio, call.kl), numbers_of(call),
              [=](auto d, auto logp, auto old_logp, auto ref_logp, auto mask, auto& ratio, auto& kl) HWY_ATTR {
                ratio = ratio_of(d, logp, old_logp, ref_logp, mask);
                kl = kl_of(d, logp, old_logp, ref_logp, mask);
              });
}

void ratio_kl_backward(const RatioKlBackward& call, const Context& context) {
  const auto& params = call.params;
  const bool has_old = call.old_logp.present(), has_kl = call.grad_kl.present();
  const bool by_ratio = params.kl_weight == KlWeight::ratio;
  const double x_bound = bound_or_none(params.log_ratio_clamp), d_bound = bound_or_none(params.diff_clamp);
  const double bound = bound_or_none(params.value_clamp), at_bound = gradient_at_bound(params.clamp_gradient);
  const double largest = params.kl_gradient_weight_max;
  const auto kind = params.kl_kind;
  const auto gradient = params.kl_gradient;
  const auto kl_slope = [=](auto d, auto delta, auto difference) HWY_ATTR {
    if (gradient == KlGradient::k2) return hn::Neg(difference);
    if (gradient == KlGradient::k2_weighted) return hn::Neg(times(d, difference, k2_weight(d, delta, largest)));
    const auto f = kl_estimate(d, kind, clamped(d, difference, -d_bound, d_bound));
    auto value = f.value, slope = clamped_slope(d, hn::Neg(f.slope), difference, -d_bound, d_bound, at_bound);
    if (by_ratio) {
      const auto weight = exp(d, delta);
      value = times(d, weight, value);
      slope = hn::Add(times(d, weight, slope), value);
    }
    return clamped_slope(d, slope, value, -bound, bound, at_bound);
  };
  const auto [logp, old_logp, ref_logp, mask] = numbers_of(call);
  map<double>(context, to(call.grad_logp), from(logp, old_logp, ref_logp, mask, call.grad_ratio, or_zero(call.grad_kl)),
              [=](auto d, auto own, auto old, auto ref, auto kept, auto of_ratio, auto of_kl) HWY_ATTR {
                const auto delta = log_ratio(d, has_old, own, old);
                auto slope = weighted(d, of_ratio, clamped_slope(d, exp(d, delta), delta, -x_bound, x_bound, at_bound));
                if (has_kl)
                  slope = hn::MulAdd(of_kl, unless_zero(d, of_kl, kl_slope(d, delta, hn::Sub(ref, own))), slope);
                return if_kept(d, kept, slope);
              });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(RatioKl, ratio_kl, .operations = per_element<150>);
RLK_CPU_VECTOR_KERNEL(RatioKlBackward, ratio_kl_backward, .operations = per_element<200>);

}  // namespace rlk::cpu
