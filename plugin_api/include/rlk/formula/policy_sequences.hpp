// What the tokens of a sequence share, of sums over them: what corrections by the sampler, and the terms of the losses,
// make of these. Plain functions of numbers, in fp64.
#pragma once

#include <rlk/formula/policy_rules.hpp>

#include <cmath>

namespace rlk::formula {

// Over unmasked tokens: of the log ratio to the sampler, of the gate's divergence, and of the estimates.
struct CorrectionSum {
  enum { kTokens, kR, kDivergence, kK1, kK2, kK3, kLargestK2, kLargestK3, kAll };
};
// Over active tokens: what a kind asks for.
struct TermSum {
  enum { kActive, kSelected, kX, kOff, kL, kMeant, kAdvantage, kLogWeight, kU, kAll };
};

constexpr double kLeastLog = -18.420680743952367;  // log(1e-8), of vespo: of log w and of their sum

RLK_FORMULA_OF_A_CLAMP double within(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;  // a NaN stays one
}

// keeps(bounds, k1, k2, k3): whether the estimates are within bounds.
template <class Keeps>
RLK_FORMULA_OF_A_CLAMP PolicySequence corrected_sequence(const PolicyRules& rules, const double* sums,
                                                         const Keeps& keeps) {
  using Sum = CorrectionSum;
  PolicySequence own;
  const double tokens = sums[Sum::kTokens];
  if (!(tokens > 0)) return own;
  own.rejected =
      rules.rejects_sequences &&
      !(keeps(rules.sequence_sum, sums[Sum::kK1], sums[Sum::kK2], sums[Sum::kK3]) &&
        keeps(rules.sequence_mean, sums[Sum::kK1] / tokens, sums[Sum::kK2] / tokens, sums[Sum::kK3] / tokens) &&
        keeps(rules.sequence_max, 0.0, sums[Sum::kLargestK2], sums[Sum::kLargestK3]));
  const double low = rules.rollout_low, high = rules.rollout_high, mean = sums[Sum::kR] / tokens;
  const double ratio = ::exp(within(rules.means_rollout ? mean : sums[Sum::kR], -rules.r_bound, rules.r_bound));
  if (rules.rollout_is == PolicyRules::RolloutIs::sequence_truncate) own.weight = within(ratio, low, high);
  if (rules.rollout_is == PolicyRules::RolloutIs::sequence_mask) {
    own.weight = ratio >= low && ratio <= high ? ratio : 0.0;
  }
  const double gate = rules.gate == PolicyRules::Gate::ratio ? ::exp(within(mean, -rules.r_bound, rules.r_bound))
                                                             : sums[Sum::kDivergence] / tokens;
  own.keeps_weights = gate >= low && gate <= high;
  return own;
}

// vespo: phi of an advantage's sign, with u the sum of log w, clamped.
RLK_FORMULA_OF_A_CLAMP double phi_of(double u, double k, double given) {
  const double lambda = given < 1e-4 ? 1e-4 : given, phi = ::exp(lambda + k * u - lambda * ::exp(u));
  return phi - phi == 0 ? phi : 0.0;
}

// Of a sequence whose corrections are found, if there are any.
RLK_FORMULA_OF_A_CLAMP void put_terms(const PolicyRules& rules, const double* sums, PolicySequence& own) {
  using Sum = TermSum;
  own.active = sums[Sum::kActive];
  own.selected = sums[Sum::kSelected];
  const double n = own.active;
  if (!(n > 0)) return;
  const double x = rules.importance_ratio == PolicyRules::Ratio::sequence_sum ? sums[Sum::kX] : sums[Sum::kX] / n;
  own.log_ratio = within(x, rules.x_low, rules.x_high);
  own.log_ratio_slope = clamp_gradient(x, rules.x_low, rules.x_high, rules.at_bound);
  own.off_policy = sums[Sum::kOff] / n;
  own.meant = sums[Sum::kMeant] < 1 ? 1 : sums[Sum::kMeant];
  const double power = ::exp(sums[Sum::kL] / own.meant), advantage = sums[Sum::kAdvantage] / n;
  own.geometric = advantage == 0 && power == __builtin_huge_val() ? 0 : -advantage * power;
  own.geometric_weight = ::exp(sums[Sum::kLogWeight] / n);
  const double u = within(sums[Sum::kU], kLeastLog, 20);
  own.phi_positive = phi_of(u, rules.k_positive, rules.lambda_positive);
  own.phi_negative = phi_of(u, rules.k_negative, rules.lambda_negative);
}

}  // namespace rlk::formula
