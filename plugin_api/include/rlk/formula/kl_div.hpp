// Divergence and distance of distributions, element by element, and their slopes.
#pragma once

#include <rlk/formula/vocabulary.hpp>

namespace rlk::formula {

RLK_FORMULA float natural_log(float x) {
  return ::logf(x);
}
RLK_FORMULA double natural_log(double x) {
  return ::log(x);
}

// What the parameters of a call say.
struct DivergenceTerms {
  enum class Reduction { batchmean, mean, sum, none };
  double denominator, eps;
  Reduction reduction;
  bool is_log;

  static bool asks_f64() { return false; }
};
template <class Params>
inline DivergenceTerms distance_terms(const Params& params) {
  DivergenceTerms terms{};
  terms.denominator = params.denominator;
  terms.reduction = static_cast<DivergenceTerms::Reduction>(params.reduction);
  return terms;
}
template <class Params>
inline DivergenceTerms kl_div_terms(const Params& params) {
  DivergenceTerms terms = distance_terms(params);
  terms.eps = params.eps;
  terms.is_log = params.log_target == decltype(params.log_target)::on;
  return terms;
}

// What the sum is multiplied by; 0: nothing is summed.
RLK_FORMULA double reduction_factor(const DivergenceTerms& terms, double rows, double columns) {
  using Reduction = DivergenceTerms::Reduction;
  if (terms.reduction == Reduction::none) return 0;
  if (terms.denominator > 0) return 1 / terms.denominator;
  if (terms.reduction == Reduction::sum) return 1;
  const double natural = terms.reduction == Reduction::mean ? rows * columns : rows;
  return 1 / (natural > 1 ? natural : 1);
}

}  // namespace rlk::formula

RLK_FORMULA_BEGIN

template <class D, class V>
RLK_FORMULA V probability_of(D d, const formula::DivergenceTerms& terms, V target) {
  return terms.is_log ? exp(d, target) : IfThenZeroElse(Lt(target, Zero(d)), target);
}
// log max(x, eps); of a NaN any number, which is multiplied by that NaN then.
template <class D, class V>
RLK_FORMULA V log_at_least(D d, double eps, V x) {
  constexpr double kTiny = sizeof(TFromD<D>) == 4 ? 0x1p-149 : 0x1p-1074;
  const V low = number(d, eps > kTiny ? eps : kTiny);
  return natural_log(IfThenElse(Gt(x, low), x, low));
}

template <class D, class V>
RLK_FORMULA V kl_div_term(D d, const formula::DivergenceTerms& terms, V input, V target) {
  const V t = probability_of(d, terms, target);
  const V log_t = terms.is_log ? target : log_at_least(d, terms.eps, t);
  return IfThenZeroElse(Eq(t, Zero(d)), Mul(t, Sub(log_t, input)));
}
// Slopes by input and by target.
template <class D, class V>
RLK_FORMULA Two<V> kl_div_slopes(D d, const formula::DivergenceTerms& terms, V input, V target) {
  const V t = probability_of(d, terms, target), one = number(d, 1);
  V slope = Mul(t, Sub(Add(target, one), input));
  if (!terms.is_log) {
    const auto is_below = Le(t, number(d, terms.eps));
    slope = Sub(Add(log_at_least(d, terms.eps, t), IfThenZeroElse(is_below, one)), input);
    slope = IfThenElse(IsNaN(t), t, slope);
  }
  return {Neg(t), IfThenZeroElse(Eq(t, Zero(d)), slope)};
}

template <class D, class V>
RLK_FORMULA V distance_term(D d, V input, V target) {
  return Mul(number(d, 0.5), Abs(Sub(input, target)));
}
template <class D, class V>
RLK_FORMULA Two<V> distance_slopes(D d, V input, V target) {
  const V difference = Sub(input, target), half = number(d, 0.5);
  const V slope = IfThenElse(IsNaN(difference), difference, IfThenElse(Gt(input, target), half, Neg(half)));
  const V of_input = IfThenZeroElse(Eq(input, target), slope);
  return {of_input, IfThenZeroElse(Eq(input, target), Neg(slope))};
}

RLK_FORMULA_END
