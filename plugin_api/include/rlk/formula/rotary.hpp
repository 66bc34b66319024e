// Rotary embedding: pairs of numbers that are turned.
#if defined(RLK_FORMULA_ROTARY) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_ROTARY
#undef RLK_FORMULA_ROTARY
#else
#define RLK_FORMULA_ROTARY
#endif

#include <rlk/formula/vocabulary.hpp>

RLK_FORMULA_BEGIN

// Each member of a pair has a cosine and a sine of its own. sign: -1 turns back.
template <class D, class V>
RLK_FORMULA Two<V> turned(D d, V a, V b, V cos_a, V sin_a, V cos_b, V sin_b, double sign) {
  return {NegMulAdd(b, Mul(sin_a, number(d, sign)), Mul(a, cos_a)),
          MulAdd(a, Mul(sin_b, number(d, sign)), Mul(b, cos_b))};
}

RLK_FORMULA_END
#endif
