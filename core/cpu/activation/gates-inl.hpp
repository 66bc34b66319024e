// What a gate of a feed-forward layer is made of: silu in parts, and the distributions of gelu.
#if defined(RLK_CPU_GATES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_GATES_INL
#undef RLK_CPU_GATES_INL
#else
#define RLK_CPU_GATES_INL
#endif

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// The logistic function s of x in parts that stay normal numbers where x s is one: of exp(-|x|) the root, 1 or that
// root, whose square is the numerator, and the denominator.
template <class V>
struct Logistic {
  V root, numerator, denominator;
};
template <class D, class V>
HWY_INLINE Logistic<V> logistic(D d, V x) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1});
  const auto root = exp(d, hn::Mul(hn::Abs(x), hn::Set(d, static_cast<T>(-0.5))));
  return {root, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), root, one), hn::MulAdd(root, root, one)};
}

// x s.
template <class V>
HWY_INLINE V silu_of(V x, const Logistic<V>& s) {
  return hn::Div(hn::Mul(hn::Mul(x, s.numerator), s.numerator), s.denominator);
}
// 1 + x (1 - s), which times s is the slope of silu.
template <class D, class V>
HWY_INLINE V silu_slope_over_s(D d, V x, const Logistic<V>& s) {
  const auto one = hn::Set(d, hn::TFromD<D>{1});
  const auto opposite = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), one, hn::Mul(s.root, s.root));
  return hn::MulAdd(x, hn::Div(opposite, s.denominator), one);
}

// P(x) and P'(x): the normal distribution function, with all its digits below 0 too, where 1 + erf would have few.
template <class D, class V>
HWY_INLINE void normal_distribution(D d, V x, V& value, V& slope) {
  using T = hn::TFromD<D>;
  // Beyond this the density is 0, and an infinity would make it NaN.
  const auto a = at_most(d, sizeof(T) == 4 ? T{16} : T{40}, hn::Abs(x));
  const auto power = exp2(d, hn::Mul(hn::Mul(a, a), hn::Set(d, static_cast<T>(-0.5 * 1.4426950408889634))));
  const auto tail = hn::Mul(power, scaled_normal_tail(d, a));
  slope = hn::Mul(power, hn::Set(d, static_cast<T>(0.39894228040143268)));
  value = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, T{1}), tail));
}

// The same by its approximation: (1 + tanh(u)) / 2 is the logistic function of 2 u, which has all digits below 0 too.
template <class D, class V>
HWY_INLINE void tanh_distribution(D d, V x, V& value, V& slope) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1}), zero = hn::Zero(d);
  const auto root = hn::Set(d, static_cast<T>(0.79788456080286536)), cubic = hn::Set(d, static_cast<T>(0.044715));
  const auto square = hn::Mul(cubic, hn::Mul(x, x));
  const auto u = hn::Mul(root, hn::MulAdd(square, x, x));
  const auto power = exp2(d, hn::Mul(hn::Abs(u), hn::Set(d, static_cast<T>(-2 * 1.4426950408889634))));
  const auto share = hn::Div(one, hn::Add(one, power));
  const auto of_u = hn::Mul(root, hn::MulAdd(square, hn::Set(d, T{3}), one));
  // Far out the derivative is less than the smallest number, and a product with infinity would be anything.
  const auto is_near = hn::Lt(hn::Abs(x), hn::Set(d, T{16}));
  const auto derivative = hn::Mul(hn::Mul(power, share), hn::Mul(share, hn::Set(d, T{2})));
  slope = hn::IfThenElseZero(is_near, hn::Mul(derivative, of_u));
  value = hn::Mul(hn::IfThenElse(hn::Lt(x, zero), power, one), share);
}

template <class Call, class F>
HWY_INLINE void with_distribution(const Call& call, const F& function) {
  if (call.params.approximate == std::decay_t<decltype(call.params.approximate)>::tanh) {
    function([](auto d, auto x, auto& value, auto& slope) HWY_ATTR { tanh_distribution(d, x, value, slope); });
  } else {
    function([](auto d, auto x, auto& value, auto& slope) HWY_ATTR { normal_distribution(d, x, value, slope); });
  }
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
