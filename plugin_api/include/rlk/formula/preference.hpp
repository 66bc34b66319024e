// Losses of preferred and rejected sequences and their slopes, in fp64: plain functions of one pair's numbers. There
// are as many pairs as sequences, so that nothing here needs vectors.
#pragma once

#include <cmath>

#if defined(RLK_FORMULA)
#define RLK_FORMULA_OF_PAIRS RLK_FORMULA
#else
#define RLK_FORMULA_OF_PAIRS inline
#endif

namespace rlk::formula {

// The kinds by the declaration's numbers.
struct PreferenceRules {
  enum class Kind {
    sigmoid,
    hinge,
    ipo,
    exo_pair,
    nca_pair,
    robust,
    bco_pair,
    sppo_hard,
    apo_zero,
    apo_down,
    discopop,
    orpo,
    kto
  };

  Kind kind;
  double beta, margin, smoothing, epsilon, tau, desirable, undesirable;
  double factor;  // 1 / D of the declaration
};
template <class Params>
inline PreferenceRules preference_rules(const Params& params, double chosen, double rejected) {
  PreferenceRules rules{};
  rules.kind = static_cast<PreferenceRules::Kind>(params.kind);
  rules.beta = params.beta;
  rules.margin = params.margin;
  rules.smoothing = params.label_smoothing;
  rules.epsilon = params.exo_epsilon;
  rules.tau = params.discopop_tau;
  rules.desirable = params.desirable_weight;
  rules.undesirable = params.undesirable_weight;
  const double count = rules.kind == PreferenceRules::Kind::kto ? chosen + rejected : chosen;
  using Reduction = decltype(params.reduction);
  if (params.reduction != Reduction::none) {
    rules.factor = params.denominator > 0               ? 1 / params.denominator
                   : params.reduction == Reduction::sum ? 1
                                                        : 1 / (count < 1 ? 1 : count);
  }
  return rules;
}

RLK_FORMULA_OF_PAIRS double pair_sigmoid(double x) {
  return 1 / (1 + ::exp(-x));
}
RLK_FORMULA_OF_PAIRS double log_sigmoid(double x) {
  const double rest = ::log1p(::exp(-::fabs(x)));
  return x < 0 ? x - rest : -rest;
}

// The part of one outcome in KL(x || y), x log(x / y), plus y - x, which is 0 over all outcomes: never negative.
RLK_FORMULA_OF_PAIRS double divergence_term(double x, double log_x, double y, double log_y) {
  const double d = log_y - log_x;
  if (x == 0) return y;
  if (::fabs(d) < 0x1p-7) {
    return x * d * d * (1.0 / 2 + d * (1.0 / 6 + d * (1.0 / 24 + d * (1.0 / 120 + d * (1.0 / 720 + d / 5040)))));
  }
  const double term = y - x - x * d;
  return term < 0 ? 0 : term;  // a NaN stays one
}

// What a weight of 0 takes out is not looked at: the logarithm may be -inf.
RLK_FORMULA_OF_PAIRS double unless_weightless(double weight, double x) {
  return weight == 0 ? 0 : weight * x;
}

// A loss and its slopes along the log-probabilities of the preferred and of the rejected sequence.
struct PairLoss {
  double value, chosen, rejected;
};
// Of a loss of z = beta (hc - hr) - margin alone.
RLK_FORMULA_OF_PAIRS PairLoss of_difference(double value, double slope, double beta) {
  return {value, beta * slope, -beta * slope};
}

// Log-probabilities, and those less the reference's.
struct PreferencePair {
  double c, r, hc, hr;
};

// Of every kind but kto.
RLK_FORMULA_OF_PAIRS PairLoss pair_loss_of(const PreferenceRules& rules, const PreferencePair& pair) {
  using Kind = PreferenceRules::Kind;
  const double beta = rules.beta, s = rules.smoothing, e = rules.epsilon;
  const double difference = pair.hc - pair.hr, a = beta * pair.hc, b = beta * pair.hr;
  const double z = beta * difference - rules.margin;
  switch (rules.kind) {
    case Kind::sigmoid:
      return of_difference(-unless_weightless(1 - s, log_sigmoid(z)) - unless_weightless(s, log_sigmoid(-z)),
                           s * pair_sigmoid(z) - (1 - s) * pair_sigmoid(-z), beta);
    case Kind::hinge:
      if (z >= 1) return {0, 0, 0};
      return of_difference(1 - z, z != z ? z : -1, beta);
    case Kind::ipo: {
      const double off = difference - 1 / (2 * beta);
      return {off * off, 2 * off, -2 * off};
    }
    case Kind::exo_pair: {
      const double win = pair_sigmoid(z), lose = pair_sigmoid(-z);
      const double log_win = log_sigmoid(z), log_lose = log_sigmoid(-z), log_rest = ::log1p(-e), log_e = ::log(e);
      const double value = divergence_term(win, log_win, 1 - e, log_rest) + divergence_term(lose, log_lose, e, log_e);
      const double slope = unless_weightless(win * lose, (log_win - log_rest) - (log_lose - log_e));
      return of_difference(value, slope, beta);
    }
    case Kind::nca_pair:
      return {-log_sigmoid(a) - (log_sigmoid(-a) + log_sigmoid(-b)) / 2,
              beta * (pair_sigmoid(a) / 2 - pair_sigmoid(-a)), beta * pair_sigmoid(b) / 2};
    case Kind::robust: {
      const double slope = -(1 - s) * pair_sigmoid(-z) - s * pair_sigmoid(z);
      return of_difference((unless_weightless(s, log_sigmoid(-z)) - (1 - s) * log_sigmoid(z)) / (1 - 2 * s),
                           slope / (1 - 2 * s), beta);
    }
    case Kind::bco_pair:
      return {-log_sigmoid(a) - log_sigmoid(-b), -beta * pair_sigmoid(-a), beta * pair_sigmoid(b)};
    case Kind::sppo_hard: {
      const double win = pair.hc - 1 / (2 * beta), lose = pair.hr + 1 / (2 * beta);
      return {win * win + lose * lose, 2 * win, 2 * lose};
    }
    case Kind::apo_zero:
      return {pair_sigmoid(-a) + pair_sigmoid(b), -beta * pair_sigmoid(a) * pair_sigmoid(-a),
              beta * pair_sigmoid(b) * pair_sigmoid(-b)};
    case Kind::apo_down: {
      const double of_z = pair_sigmoid(z) * pair_sigmoid(-z);
      return {pair_sigmoid(a) + pair_sigmoid(-z), beta * (pair_sigmoid(a) * pair_sigmoid(-a) - of_z), beta * of_z};
    }
    case Kind::discopop: {
      const double scaled = z / rules.tau, share = pair_sigmoid(scaled), rest = pair_sigmoid(-scaled);
      const double power = ::exp(log_sigmoid(scaled) - z);  // exp(-z) share: one factor alone may be beyond fp64
      const double of_share = rest / rules.tau * (power + share * log_sigmoid(z));
      return of_difference(power - log_sigmoid(z) * rest, of_share - pair_sigmoid(-z) * rest - power, beta);
    }
    case Kind::orpo: {
      const double rest_c = -::expm1(pair.c), rest_r = -::expm1(pair.r);
      const double odds = (pair.c - pair.r) - (::log(rest_c) - ::log(rest_r));
      const double lost = pair_sigmoid(-odds);
      // Where c is certain, lost is 0 and its share in rest_c has a limit.
      const double of_c = rest_c == 0 && rest_r > 0 ? ::exp(pair.r) / rest_r : lost / rest_c;
      return {-beta * log_sigmoid(odds), -beta * of_c, beta * lost / rest_r};
    }
    case Kind::kto:
      break;
  }
  return {0, 0, 0};
}

// A sequence by itself, of kto: weight (1 - S(beta h)), and its slope along h.
struct KtoLoss {
  double value, slope;
};
RLK_FORMULA_OF_PAIRS KtoLoss kto_loss_of(double beta, double weight, double h) {
  const double rest = pair_sigmoid(-beta * h);
  return {weight * rest, -weight * beta * rest * pair_sigmoid(beta * h)};
}

}  // namespace rlk::formula
