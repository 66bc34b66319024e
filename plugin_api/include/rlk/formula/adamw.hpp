// A step of AdamW.
#if defined(RLK_FORMULA_ADAMW) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_ADAMW
#undef RLK_FORMULA_ADAMW
#else
#define RLK_FORMULA_ADAMW
#endif

#include <rlk/formula/vocabulary.hpp>

RLK_FORMULA_BEGIN

// What a step makes of the operator's parameters, once for all elements.
struct AdamwRates {
  double beta1, first_share, beta2, second_share, decay, rate, root_left, eps;

  // The root of a second moment that fp32 makes 0 is below 2^-63: nothing beside an eps as it is, everything beside 0.
  bool asks_f64() const { return !(eps * root_left > 0x1p-36 && eps < 0x1p100 && fits(rate) && fits(decay)); }
  static bool fits(double factor) {
    const double size = factor < 0 ? -factor : factor;
    return size == 0 || (size > 0x1p-100 && size < 0x1p100);
  }
};
template <class Params>
RLK_FORMULA AdamwRates adamw_rates(const Params& p) {
  const double first_left = 1 - ::pow(p.beta1, static_cast<double>(p.step));
  const double second_left = 1 - ::pow(p.beta2, static_cast<double>(p.step));
  const double sign = static_cast<int>(p.maximize) != 0 ? -1 : 1;
  return {p.beta1,           sign * (1 - p.beta1), p.beta2, 1 - p.beta2, 1 - p.lr * p.weight_decay,
          p.lr / first_left, ::sqrt(second_left),  p.eps};
}

// The parameter and both moments behind the step.
template <class D, class V>
RLK_FORMULA Three<V> adamw_of(D d, const AdamwRates& rates, V grad, V param, V first, V second) {
  const V m = MulAdd(first, number(d, rates.beta1), Mul(grad, number(d, rates.first_share)));
  // The share first: the square alone may be infinite where the moment is not.
  const V share = number(d, rates.second_share);
  const V v = MulAdd(second, number(d, rates.beta2), Mul(Mul(grad, share), grad));
  V root_of_v = Sqrt(v);
  const auto is_finite = IsFinite(v);
  if (sizeof(TFromD<D>) == 4 && !AllTrue(d, is_finite)) {  // its root may be finite all the same
    const V least = number(d, 0x1p-64), small = Mul(grad, least);
    const V small_v = MulAdd(Mul(Mul(second, least), least), number(d, rates.beta2), Mul(Mul(small, share), small));
    root_of_v = IfThenElse(is_finite, root_of_v, Mul(Sqrt(small_v), number(d, 0x1p64)));
  }
  const V root = Add(Div(root_of_v, number(d, rates.root_left)), number(d, rates.eps));
  return {Sub(Mul(param, number(d, rates.decay)), Mul(Div(m, root), number(d, rates.rate))), m, v};
}

RLK_FORMULA_END
#endif
