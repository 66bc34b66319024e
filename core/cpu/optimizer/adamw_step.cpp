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
  const auto step = [=](auto d, auto grad, auto param, auto first, auto second, auto& next, auto& m, auto& v) HWY_ATTR {
    using TC = hn::TFromD<decltype(d)>;
    const auto all = [d](double number) HWY_ATTR { return hn::Set(d, static_cast<TC>(number)); };
    m = hn::MulAdd(first, all(p.beta1), hn::Mul(grad, all(first_share)));
    // The share first: the square alone may be infinite where the moment is not.
    v = hn::MulAdd(second, all(p.beta2), hn::Mul(hn::Mul(grad, all(second_share)), grad));
    auto root_of_v = hn::Sqrt(v);
    const auto is_finite = hn::IsFinite(v);
    if (sizeof(TC) == 4 && !hn::AllTrue(d, is_finite)) {  // its root may be finite all the same
      const auto least = all(0x1p-64), small = hn::Mul(grad, least);
      const auto small_v = hn::MulAdd(hn::Mul(hn::Mul(second, least), least), all(p.beta2),
                                      hn::Mul(hn::Mul(small, all(second_share)), small));
      root_of_v = hn::IfThenElse(is_finite, root_of_v, hn::Mul(hn::Sqrt(small_v), all(0x1p64)));
    }
    const auto root = hn::Add(hn::Div(root_of_v, all(root_left)), all(p.eps));
    next = hn::Sub(hn::Mul(param, all(decay)), hn::Mul(hn::Div(m, root), all(rate)));
  };
  const auto out = to(call.out_param, call.out_exp_avg, call.out_exp_avg_sq);
  const auto in = from(call.grad, call.param, call.exp_avg, call.exp_avg_sq);
  // The root of a second moment that fp32 makes 0 is below 2^-63: nothing beside an eps as it is, everything beside 0.
  // Not fp64 for all: one thread would take half as long again as memory does.
  const bool fits = p.eps * root_left > 0x1p-36 && p.eps < 0x1p100 && fits_f32(rate) && fits_f32(decay);
  fits ? map(context, out, in, step) : map<double>(context, out, in, step);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(AdamwStep, adamw_step, .operations = per_element<40>);

}  // namespace rlk::cpu
