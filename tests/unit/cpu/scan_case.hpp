// Calls of gae, and of returns on the same rewards; and the trainers' recursions.
#pragma once

#include <rlk/sdk/ops/gae.hpp>
#include <rlk/sdk/ops/returns.hpp>

#include "unit/cpu/trainer_rows.hpp"

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

// ---- the trainers' recursions over [sequence][token]; tokens that do not count have 0
// ---------------------------------

struct Estimates {
  Matrix advantages, returns;
};
inline Estimates verl_gae(const Matrix& r, const Matrix& v, const Matrix& m, double gamma, double lam) {
  Estimates out{m, m};
  for (size_t b = 0; b < r.size(); ++b) {
    double next_value = 0, last = 0;
    for (size_t t = r[b].size(); t-- > 0;) {
      const double delta = r[b][t] + gamma * next_value - v[b][t], counts = m[b][t];
      next_value = v[b][t] * counts + (1 - counts) * next_value;
      last = (delta + gamma * lam * last) * counts + (1 - counts) * last;
      out.advantages[b][t] *= last;
      out.returns[b][t] *= last + v[b][t];
    }
  }
  return out;
}
// Also that of slime, whose masked tokens are all behind the others.
inline Estimates openrlhf_gae(const Matrix& r, const Matrix& v, const Matrix& m, double gamma, double lam) {
  Estimates out{m, m};
  for (size_t b = 0; b < r.size(); ++b) {
    double next_value = 0, last = 0;
    for (size_t t = r[b].size(); t-- > 0;) {
      const double value = v[b][t] * m[b][t];
      last = r[b][t] * m[b][t] + gamma * next_value - value + gamma * lam * last;
      next_value = value;
      out.advantages[b][t] *= last;
      out.returns[b][t] *= last + value;
    }
  }
  return out;
}
// Of rewards. What a masked token makes of the sum behind it is the rule: verl 0.9.1 carries it on, before it reset it;
// OpenRLHF and slime go through it with reward 0.
inline Matrix running_sums(const Matrix& r, const Matrix& m, double gamma, ReturnsRule rule) {
  Matrix sums = m;
  for (size_t b = 0; b < r.size(); ++b) {
    double running = 0;
    for (size_t t = r[b].size(); t-- > 0;) {
      const double next = r[b][t] + gamma * running;
      const double behind_masked = rule == ReturnsRule::carry  ? running
                                   : rule == ReturnsRule::zero ? gamma * running
                                                               : 0;
      sums[b][t] *= next;
      running = m[b][t] * next + (1 - m[b][t]) * behind_masked;
    }
  }
  return sums;
}

}  // namespace rlk::test
