// One step of AdamW, in one pass over parameters, gradients and moments.
#include <rlk/sdk/ops/adamw_step.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/optimizer/adamw_step.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/formulas-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

#include <rlk/formula/adamw.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void adamw_step(const CallOf<sdk::ops::AdamwStep>& call, const Context& context) {
  const AdamwRates rates = adamw_rates(call.params);
  const auto step = [=](auto d, auto grad, auto param, auto first, auto second, auto& next, auto& m, auto& v)
                        HWY_ATTR { put(adamw_of(d, rates, grad, param, first, second), next, m, v); };
  const auto out = to(call.out_param, call.out_exp_avg, call.out_exp_avg_sq);
  const auto in = from(call.grad, call.param, call.exp_avg, call.exp_avg_sq);
  // Not fp64 for all: one thread would take half as long again as memory does.
  rates.asks_f64() ? map<double>(context, out, in, step) : map(context, out, in, step);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(AdamwStep, adamw_step, .operations = per_element<40>);

}  // namespace rlk::cpu
