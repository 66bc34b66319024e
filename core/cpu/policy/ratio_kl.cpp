// Importance ratio and KL estimate of every token, and their gradient, in fp64, one pass over memory.
#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/policy/ratio_kl.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/policy/estimates-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

#include <rlk/formula/ratio_kl.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
using RatioKlForward = CallOf<sdk::ops::RatioKl>;
using RatioKlBackward = CallOf<sdk::ops::RatioKlBackward>;

// What the formula takes of a token: logp, old_logp, ref_logp, mask.
template <class Call>
std::array<Array, 4> numbers_of(const Call& call) {
  return from(call.logp, or_zero(call.old_logp), or_zero(call.ref_logp), or_one(call.mask));
}

void ratio_kl(const RatioKlForward& call, const Context& context) {
  const RatioKlTerms terms = ratio_kl_terms(call.params, call.old_logp.present(), call.kl.present());
  const auto only_ratio = [=](auto d, auto logp, auto old_logp, auto /*ref*/, auto mask)
                              HWY_ATTR { return ratio_of(d, terms, logp, old_logp, mask); };
  if (!call.kl.present()) return map<double>(context, to(call.ratio), numbers_of(call), only_ratio);
  map<double>(context, to(call.ratio, call.kl), numbers_of(call),
              [=](auto d, auto logp, auto old_logp, auto ref_logp, auto mask, auto& ratio, auto& kl) HWY_ATTR {
                ratio = ratio_of(d, terms, logp, old_logp, mask);
                kl = kl_of(d, terms, logp, old_logp, ref_logp, mask);
              });
}

void ratio_kl_backward(const RatioKlBackward& call, const Context& context) {
  const RatioKlTerms terms = ratio_kl_gradient_terms(call.params, call.old_logp.present(), call.grad_kl.present());
  const auto [logp, old_logp, ref_logp, mask] = numbers_of(call);
  map<double>(context, to(call.grad_logp), from(logp, old_logp, ref_logp, mask, call.grad_ratio, or_zero(call.grad_kl)),
              [=](auto d, auto own, auto old, auto ref, auto kept, auto of_ratio, auto of_kl)
                  HWY_ATTR { return ratio_kl_gradient(d, terms, own, old, ref, kept, of_ratio, of_kl); });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(RatioKl, ratio_kl, .operations = per_element<150>);
RLK_CPU_VECTOR_KERNEL(RatioKlBackward, ratio_kl_backward, .operations = per_element<200>);

}  // namespace rlk::cpu
