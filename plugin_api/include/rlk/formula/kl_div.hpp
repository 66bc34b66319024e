// Divergence and distance of distributions, element by element, and their slopes.
#if defined(RLK_FORMULA_KL_DIV) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_KL_DIV
#undef RLK_FORMULA_KL_DIV
#else
#define RLK_FORMULA_KL_DIV
#endif

#include <rlk/formula/divergence_terms.hpp>
#include <rlk/formula/vocabulary.hpp>

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
#endif
