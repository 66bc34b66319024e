// Sums and quotients, and their gradients.
#if defined(RLK_FORMULA_ARITHMETIC) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_ARITHMETIC
#undef RLK_FORMULA_ARITHMETIC
#else
#define RLK_FORMULA_ARITHMETIC
#endif

#include <rlk/formula/vocabulary.hpp>

RLK_FORMULA_BEGIN

// a + factor b
template <class D, class V>
RLK_FORMULA V add_times(D d, V a, V b, double factor) {
  return MulAdd(number(d, factor), b, a);
}

template <class V>
RLK_FORMULA Two<V> product_gradients(V grad, V a, V b) {
  return {Mul(grad, b), Mul(grad, a)};
}

// Nothing is squared, so that only quotients that are out of range themselves overflow.
template <class V>
RLK_FORMULA Two<V> quotient_gradients(V grad, V a, V b) {
  const V of_a = Div(grad, b);
  return {of_a, Neg(Mul(of_a, Div(a, b)))};
}

RLK_FORMULA_END
#endif
