// Losses of preferred and rejected sequences and their slopes, in fp64.
#pragma once

#include <rlk/formula/estimates.hpp>

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

// What a weight of 0 takes out is not looked at: the number may be infinite.
RLK_FORMULA double unless_weightless(double weight, double x) {
  return weight == 0 ? 0 : weight * x;
}

}  // namespace rlk::formula

RLK_FORMULA_BEGIN

template <class D, class V>
RLK_FORMULA V log_sigmoid(D d, V x) {
  const V rest = log_one_plus(d, exp(d, Neg(Abs(x))));
  return IfThenElse(Lt(x, Zero(d)), Sub(x, rest), Neg(rest));
}

// A loss and its slopes along the log-probabilities of the preferred and of the rejected sequence.
template <class V>
struct PairLoss {
  V value, chosen, rejected;
};
// Of a loss of z = beta (hc - hr) - margin alone.
template <class D, class V>
RLK_FORMULA PairLoss<V> of_difference(D d, V value, V slope, double beta) {
  return {value, Mul(number(d, beta), slope), Mul(number(d, -beta), slope)};
}

// Log-probabilities, and those less the reference's.
template <class V>
struct PreferencePair {
  V c, r, hc, hr;
};

// Of every kind but kto.
template <class D, class V>
RLK_FORMULA PairLoss<V> pair_loss_of(D d, const formula::PreferenceRules& rules, const PreferencePair<V>& pair) {
  using Kind = formula::PreferenceRules::Kind;
  const double s = rules.smoothing, e = rules.epsilon;
  const V zero = Zero(d), one = number(d, 1.0), half = number(d, 0.5), beta = number(d, rules.beta);
  const V difference = Sub(pair.hc, pair.hr), a = Mul(beta, pair.hc), b = Mul(beta, pair.hr);
  const V z = Sub(Mul(beta, difference), number(d, rules.margin));
  switch (rules.kind) {
    case Kind::sigmoid: {
      const V kept = number(d, 1 - s), turned = number(d, s);
      const V value = Sub(Neg(weighted(d, kept, log_sigmoid(d, z))), weighted(d, turned, log_sigmoid(d, Neg(z))));
      return of_difference(d, value, Sub(Mul(turned, sigmoid(d, z)), Mul(kept, sigmoid(d, Neg(z)))), rules.beta);
    }
    case Kind::hinge: {
      const auto is_far = Ge(z, one);
      return of_difference(d, IfThenZeroElse(is_far, Sub(one, z)),
                           IfThenZeroElse(is_far, IfThenElse(IsNaN(z), z, Neg(one))), rules.beta);
    }
    case Kind::ipo: {
      const V off = Sub(difference, number(d, 1 / (2 * rules.beta))), twice = Mul(number(d, 2.0), off);
      return {Mul(off, off), twice, Neg(twice)};
    }
    case Kind::exo_pair: {
      const V win = sigmoid(d, z), lose = sigmoid(d, Neg(z));
      const V log_win = log_sigmoid(d, z), log_lose = log_sigmoid(d, Neg(z));
      const V log_rest = log_one_plus(d, number(d, -e)), log_e = log_of(d, number(d, e));
      const V value = Add(divergence_term(d, win, log_win, number(d, 1 - e), log_rest),
                          divergence_term(d, lose, log_lose, number(d, e), log_e));
      const V slope = weighted(d, Mul(win, lose), Sub(Sub(log_win, log_rest), Sub(log_lose, log_e)));
      return of_difference(d, value, slope, rules.beta);
    }
    case Kind::nca_pair: {
      const V value = Sub(Neg(log_sigmoid(d, a)), Mul(half, Add(log_sigmoid(d, Neg(a)), log_sigmoid(d, Neg(b)))));
      return {value, Mul(beta, Sub(Mul(half, sigmoid(d, a)), sigmoid(d, Neg(a)))), Mul(Mul(beta, half), sigmoid(d, b))};
    }
    case Kind::robust: {
      const V kept = number(d, 1 - s), turned = number(d, s), divisor = number(d, 1 - 2 * s);
      const V slope = Sub(Neg(Mul(kept, sigmoid(d, Neg(z)))), Mul(turned, sigmoid(d, z)));
      const V value = Sub(weighted(d, turned, log_sigmoid(d, Neg(z))), Mul(kept, log_sigmoid(d, z)));
      return of_difference(d, Div(value, divisor), Div(slope, divisor), rules.beta);
    }
    case Kind::bco_pair:
      return {Sub(Neg(log_sigmoid(d, a)), log_sigmoid(d, Neg(b))), Neg(Mul(beta, sigmoid(d, Neg(a)))),
              Mul(beta, sigmoid(d, b))};
    case Kind::sppo_hard: {
      const V bound = number(d, 1 / (2 * rules.beta)), two = number(d, 2.0);
      const V win = Sub(pair.hc, bound), lose = Add(pair.hr, bound);
      return {Add(Mul(win, win), Mul(lose, lose)), Mul(two, win), Mul(two, lose)};
    }
    case Kind::apo_zero:
      return {Add(sigmoid(d, Neg(a)), sigmoid(d, b)), Neg(Mul(Mul(beta, sigmoid(d, a)), sigmoid(d, Neg(a)))),
              Mul(Mul(beta, sigmoid(d, b)), sigmoid(d, Neg(b)))};
    case Kind::apo_down: {
      const V of_z = Mul(sigmoid(d, z), sigmoid(d, Neg(z)));
      return {Add(sigmoid(d, a), sigmoid(d, Neg(z))), Mul(beta, Sub(Mul(sigmoid(d, a), sigmoid(d, Neg(a))), of_z)),
              Mul(beta, of_z)};
    }
    case Kind::discopop: {
      const V tau = number(d, rules.tau), scaled = Div(z, tau), log_of_z = log_sigmoid(d, z);
      const V share = sigmoid(d, scaled), rest = sigmoid(d, Neg(scaled));
      // exp(-z) share: one factor alone may be beyond fp64
      const V power = exp(d, Sub(log_sigmoid(d, scaled), z));
      const V of_share = Mul(Div(rest, tau), Add(power, Mul(share, log_of_z)));
      return of_difference(d, Sub(power, Mul(log_of_z, rest)), Sub(Sub(of_share, Mul(sigmoid(d, Neg(z)), rest)), power),
                           rules.beta);
    }
    case Kind::orpo: {
      const V rest_c = Neg(exp_minus_one(d, pair.c)), rest_r = Neg(exp_minus_one(d, pair.r));
      const V odds = Sub(Sub(pair.c, pair.r), Sub(log_of(d, rest_c), log_of(d, rest_r)));
      const V lost = sigmoid(d, Neg(odds));
      // Where c is certain, lost is 0 and its share in rest_c has a limit.
      const auto is_certain = And(Eq(rest_c, zero), Gt(rest_r, zero));
      const V of_c = IfThenElse(is_certain, Div(exp(d, pair.r), rest_r), Div(lost, rest_c));
      return {Neg(Mul(beta, log_sigmoid(d, odds))), Neg(Mul(beta, of_c)), Div(Mul(beta, lost), rest_r)};
    }
    case Kind::kto:
      break;
  }
  return {zero, zero, zero};
}

// A sequence by itself, of kto: weight (1 - S(beta h)), and its slope along h.
template <class V>
struct KtoLoss {
  V value, slope;
};
template <class D, class V>
RLK_FORMULA KtoLoss<V> kto_loss_of(D d, double beta, double weight, V h) {
  const V scaled = Mul(number(d, beta), h), rest = sigmoid(d, Neg(scaled));
  return {Mul(number(d, weight), rest), Mul(Mul(number(d, -weight * beta), rest), sigmoid(d, scaled))};
}

RLK_FORMULA_END
