// Calls of gae, and of returns on the same rewards.
#pragma once

#include <rlk/sdk/ops/gae.hpp>
#include <rlk/sdk/ops/returns.hpp>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {

using Gae = CallOf<ops::Gae>;
using Returns = CallOf<ops::Returns>;
using Rule = ops::gae::MaskRule;
using ReturnsRule = ops::returns::MaskRule;
using Layout = ops::gae::Layout;

inline Gae gae_of(Tensor rewards, Tensor values) {
  Gae c;
  c.rewards = std::move(rewards);
  c.values = std::move(values);
  c.returns = wanted();
  return c;
}

// Without values.
inline Returns returns_of(const Gae& c) {
  Returns returns;
  returns.rewards = c.rewards;
  returns.mask = c.mask;
  returns.bootstrap = c.bootstrap;
  returns.cu_seqlens = c.cu_seqlens;
  returns.params.layout = c.params.layout;
  returns.params.gamma = c.params.gamma;
  returns.params.mask_rule = c.params.mask_rule == Rule::carry ? ReturnsRule::carry : ReturnsRule::zero;
  return returns;
}

}  // namespace rlk::test
