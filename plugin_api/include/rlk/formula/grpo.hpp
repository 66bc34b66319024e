// GRPO's loss of a token, with its slope, in fp64: PPO's clip and the k3 estimate.
#pragma once

#include <rlk/formula/policy_kinds.hpp>

namespace rlk::formula {

// What the parameters of a call say.
struct GrpoTerms {
  double ratio_low, ratio_high, at_bound, beta, temperature, eps;
  long long ignore_index;
  long long group_sequences;  // of a fixed group, 0: all of them
  long long groups;           // that boundaries say
  bool has_boundaries, is_unbiased, adds_eps;

  bool asks_f64() const { return temperature < 0x1p-60 || temperature > 0x1p60; }
};
template <class Params, class Boundaries>
inline GrpoTerms grpo_terms(const Params& params, const Boundaries* boundaries) {
  GrpoTerms terms{};
  terms.ratio_low = 1 - params.clip_low;
  terms.ratio_high = 1 + params.clip_high;
  terms.beta = params.beta;
  terms.temperature = params.temperature;
  terms.eps = params.eps;
  terms.ignore_index = params.ignore_index;
  terms.group_sequences = params.samples_per_prompt;
  terms.groups = boundaries != nullptr ? boundaries->shape[0] - 1 : 0;
  terms.has_boundaries = boundaries != nullptr;
  terms.is_unbiased = params.std == decltype(params.std)::unbiased;
  terms.adds_eps = params.eps_mode == decltype(params.eps_mode)::additive;
  return terms;
}
template <class Params, class Boundaries>
inline GrpoTerms grpo_gradient_terms(const Params& params, const Boundaries* boundaries) {
  GrpoTerms terms = grpo_terms(params, boundaries);
  terms.at_bound = gradient_at_bound(params.clamp_gradient);
  return terms;
}

// Without a variance, as of one sequence, every advantage is 0: what it is divided by must not be.
RLK_FORMULA double advantage_divisor(const GrpoTerms& terms, double squares, double sequences) {
  const double n = terms.is_unbiased ? sequences - 1 : sequences;
  const double deviation = Sqrt(squares / (n > 1 ? n : 1));
  if (terms.adds_eps) return deviation + terms.eps;
  return deviation < terms.eps ? terms.eps : deviation;  // a NaN stays
}

// The clipped surrogate, and its slope by logp.
struct GrpoTerm {
  double value, slope;
};
RLK_FORMULA GrpoTerm grpo_surrogate(const GrpoTerms& terms, double logp, double old_logp, double advantage) {
  const Lane<double> d;
  PolicyRules rules{};
  rules.ratio_low = terms.ratio_low;
  rules.ratio_high = terms.ratio_high;
  rules.delta = Inf(d);
  rules.at_bound = terms.at_bound;
  const double log_ratio = Sub(logp, old_logp);
  const auto term = ppo(d, rules, PolicyInput<double>{logp, old_logp, advantage, log_ratio, exp(d, log_ratio), false});
  return {term.value, term.d_log_ratio};
}
// Of the KL to the reference.
RLK_FORMULA GrpoTerm grpo_kl(double logp, double ref_logp) {
  const auto of = kl_estimate(Lane<double>(), PolicyRules::KlKind::k3, Sub(ref_logp, logp));
  return {of.value, Neg(of.slope)};
}

}  // namespace rlk::formula
