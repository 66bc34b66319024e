// One step of AdamW, in one pass over parameters, gradients and moments.
#include <rlk/sdk/ops/adamw_step.hpp>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/optimizer/adamw_step.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void adamw_step(const CallOf<sdk::ops::AdamwStep>& call, const Context& context) {
  const auto p = call.params;
  const auto left = [&](double beta) { return 1 - std::pow(beta, static_cast<double>(p.step)); };
  const double sign = p.maximize == sdk::ops::adamw_step::Maximize::on ? -1 : 1;
  const double first_share = sign * (1 - p.beta1), second_share = 1 - p.beta2;
  const double decay = 1 - p.lr * p.weight_decay, rate = p.lr / left(p.beta1), root_left = std::sqrt(left(p.beta2));
  map(context, to(call.out_param, call.out_exp_avg, call.out_exp_avg_sq),
      from(call.grad, call.param, call.exp_avg, call.exp_avg_sq),
      [=](auto d, auto grad, auto param, auto first, auto second, auto& next, auto& m, auto& v) HWY_ATTR {
        using TC = hn::TFromD<decltype(d)>;
        const auto all = [d](double number) HWY_ATTR { return hn::Set(d, static_cast<TC>(number)); };
        m = hn::MulAdd(first, all(p.beta1), hn::Mul(grad, all(first_share)));
        v = hn::MulAdd(second, all(p.beta2), hn::Mul(hn::Mul(grad, grad), all(second_share)));
        const auto root = hn::Add(hn::Div(hn::Sqrt(v), all(root_left)), all(p.eps));
        next = hn::Sub(hn::Mul(param, all(decay)), hn::Mul(hn::Div(m, root), all(rate)));
      });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(AdamwStep, adamw_step, .operations = per_element<40>);

}  // namespace rlk::cpu
