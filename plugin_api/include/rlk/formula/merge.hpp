// Answers of attention over two parts of the keys as one. A part whose log-sum-exp is infinite is empty.
#if defined(RLK_FORMULA_MERGE) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_MERGE
#undef RLK_FORMULA_MERGE
#else
#define RLK_FORMULA_MERGE
#endif

#include <rlk/formula/vocabulary.hpp>

RLK_FORMULA_BEGIN

// exp(lse) of both parts relative to the larger one, which is the third. Two empty parts have shares alike.
template <class D, class V>
RLK_FORMULA Three<V> shares_of(D d, V lse_a, V lse_b) {
  const V none = Neg(Inf(d)), one = number(d, 1);
  const V a = IfThenElse(IsInf(lse_a), none, lse_a), b = IfThenElse(IsInf(lse_b), none, lse_b);
  const V larger = IfThenElse(Or(IsNaN(a), Gt(a, b)), a, b);
  return {IfThenElse(Eq(a, larger), one, exp(d, Sub(a, larger))),
          IfThenElse(Eq(b, larger), one, exp(d, Sub(b, larger))), larger};
}

// What an empty part holds may be anything.
template <class D, class V>
RLK_FORMULA V merged_of(D d, V a, V lse_a, V b, V lse_b) {
  const Three<V> share = shares_of(d, lse_a, lse_b);
  const V sum = Add(share.first, share.second);
  return MulAdd(IfThenZeroElse(IsInf(lse_a), a), Div(share.first, sum),
                Mul(IfThenZeroElse(IsInf(lse_b), b), Div(share.second, sum)));
}

// Once for a row: of lanes alone.
template <class D>
RLK_FORMULA TFromD<D> merged_lse(D d, TFromD<D> lse_a, TFromD<D> lse_b) {
  const auto share = shares_of(d, lse_a, lse_b);
  return number(d, static_cast<double>(share.third) + ::log(static_cast<double>(share.first + share.second)));
}

RLK_FORMULA_END
#endif
