// Gated activations of feed-forward layers, swiglu and geglu, and their gradients.
#include <rlk/sdk/ops/geglu.hpp>
#include <rlk/sdk/ops/geglu_backward.hpp>
#include <rlk/sdk/ops/swiglu.hpp>
#include <rlk/sdk/ops/swiglu_backward.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/activation/gated.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/activation/gates-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void swiglu(const CallOf<sdk::ops::Swiglu>& call, const Context& context) {
  map(context, to(call.y), from(call.gate, call.input), [](auto d, auto x, auto v) HWY_ATTR {
    auto root = x, numerator = x, denominator = x;
    logistic_parts(d, x, root, numerator, denominator);
    return hn::Mul(v, hn::Div(hn::Mul(hn::Mul(x, numerator), numerator), denominator));
  });
}

void swiglu_backward(const CallOf<sdk::ops::SwigluBackward>& call, const Context& context) {
  map(context, to(call.grad_gate, call.grad_input), from(call.grad_y, call.gate, call.input),
      [](auto d, auto g, auto x, auto v, auto& of_gate, auto& of_input) HWY_ATTR {
        auto root = x, numerator = x, denominator = x;
        logistic_parts(d, x, root, numerator, denominator);
        const auto one = hn::Set(d, hn::TFromD<decltype(d)>{1});
        const auto opposite = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), one, hn::Mul(root, root));
        const auto slope = hn::MulAdd(x, hn::Div(opposite, denominator), one);
        const auto share = hn::Mul(numerator, hn::Div(numerator, denominator));
        of_gate = hn::Mul(hn::Mul(g, v), hn::Mul(share, slope));
        of_input = hn::Mul(g, hn::Mul(x, share));
      });
}

void geglu(const CallOf<sdk::ops::Geglu>& call, const Context& context) {
  with_distribution(call, [&](auto distribution) HWY_ATTR {
    map(context, to(call.y), from(call.gate, call.input), [distribution](auto d, auto x, auto v) HWY_ATTR {
      auto value = x, slope = x;
      distribution(d, x, value, slope);
      return hn::Mul(v, hn::Mul(x, value));
    });
  });
}

void geglu_backward(const CallOf<sdk::ops::GegluBackward>& call, const Context& context) {
  with_distribution(call, [&](auto distribution) HWY_ATTR {
    map(context, to(call.grad_gate, call.grad_input), from(call.grad_y, call.gate, call.input),
        [distribution](auto d, auto g, auto x, auto v, auto& of_gate, auto& of_input) HWY_ATTR {
          auto value = x, slope = x;
          distribution(d, x, value, slope);
          of_gate = hn::Mul(hn::Mul(g, v), hn::MulAdd(x, slope, value));
          of_input = hn::Mul(g, hn::Mul(x, value));
        });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Swiglu, swiglu, .operations = per_element<32>);
RLK_CPU_VECTOR_KERNEL(SwigluBackward, swiglu_backward, .operations = per_element<40>);
RLK_CPU_VECTOR_KERNEL(Geglu, geglu, .operations = per_element<62>);
RLK_CPU_VECTOR_KERNEL(GegluBackward, geglu_backward, .operations = per_element<65>);

}  // namespace rlk::cpu
