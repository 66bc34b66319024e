// The words of formulas (rlk/formula/vocabulary.hpp) on vectors. Most are Highway's own, which a vector's type finds.
#if defined(RLK_CPU_FORMULAS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_FORMULAS_INL
#undef RLK_CPU_FORMULAS_INL
#else
#define RLK_CPU_FORMULAS_INL
#endif

#include <hwy/highway.h>

#include "core/cpu/simd/functions-inl.hpp"

#ifndef RLK_FORMULA_BEGIN
#define RLK_FORMULA HWY_INLINE
// Of the instruction set that is compiled where it stands.
#define RLK_FORMULA_BEGIN \
  HWY_BEFORE_NAMESPACE(); \
  namespace rlk::cpu::HWY_NAMESPACE {
#define RLK_FORMULA_END \
  }                     \
  HWY_AFTER_NAMESPACE();
#endif

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

using hn::TFromD;
using hn::VFromD;
template <class D>
constexpr bool kIsBrief = false;

template <class V>
struct Two {
  V first, second;
};
template <class V>
struct Three {
  V first, second, third;
};

// Several results of a formula, to the outputs of a map.
template <class V>
HWY_INLINE void put(const Two<V>& values, V& first, V& second) {
  first = values.first;
  second = values.second;
}
template <class V>
HWY_INLINE void put(const Three<V>& values, V& first, V& second, V& third) {
  first = values.first;
  second = values.second;
  third = values.third;
}

template <class D>
HWY_INLINE hn::VFromD<D> number(D d, double x) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(x));
}

template <class D>
HWY_INLINE hn::VFromD<D> quotient(D, hn::VFromD<D> a, hn::VFromD<D> b) {
  return hn::Div(a, b);
}

template <class D, class... Coefficients>
HWY_INLINE hn::VFromD<D> horner(D d, hn::VFromD<D> x, double highest, Coefficients... rest) {
  auto sum = number(d, highest);
  ((sum = hn::MulAdd(sum, x, number(d, rest))), ...);
  return sum;
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
