// The clipped squared error of a value function, and its gradient, in fp64.
#if defined(RLK_FORMULA_VALUE_LOSS) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_VALUE_LOSS
#undef RLK_FORMULA_VALUE_LOSS
#else
#define RLK_FORMULA_VALUE_LOSS
#endif

#include <rlk/formula/estimates.hpp>

RLK_FORMULA_BEGIN

template <class V>
struct ValueClip {
  V error, clipped_error, plain, clip, low, high;
};
// clip_eps: infinite without a clip.
template <class D, class V>
RLK_FORMULA ValueClip<V> clip_value(D d, V value, V target, V old_value, double clip_eps) {
  const V eps = number(d, clip_eps), low = Sub(old_value, eps), high = Add(old_value, eps);
  const auto inside = And(Ge(value, low), Le(value, high));
  const V clipped = IfThenElse(inside, value, IfThenElse(Lt(value, low), low, high));
  const V error = Sub(value, target), clipped_error = Sub(clipped, target);
  return {error, clipped_error, Mul(error, error), Mul(clipped_error, clipped_error), low, high};
}

// The larger of both errors; NaN where the plain one is.
template <class D, class V>
RLK_FORMULA V value_loss_of(D d, const ValueClip<V>& token) {
  const auto takes_plain = Or(IsNaN(token.plain), Gt(token.plain, token.clip));
  return Mul(number(d, 0.5), IfThenElse(takes_plain, token.plain, token.clip));
}

// at_bound: what the clip passes of the gradient at its bounds.
template <class D, class V>
RLK_FORMULA V value_slope_of(D d, V value, V target, V old_value, double clip_eps, double at_bound) {
  const auto token = clip_value(d, value, target, old_value, clip_eps);
  const V one = number(d, 1.0), zero = Zero(d);
  const V passed = clamp_gradient(d, value, token.low, token.high, at_bound);
  // The gradient of torch.max: all of it to the larger side, half to each at equality. Of errors whose squares are
  // below every number the larger one is still known.
  const V of_plain = Abs(token.error), of_clip = Abs(token.clipped_error);
  const V share = IfThenElse(Gt(of_plain, of_clip), one, IfThenElse(Gt(of_clip, of_plain), zero, number(d, 0.5)));
  const V through_clip = Mul(Mul(passed, Sub(one, share)), token.clipped_error);
  const V slope = MulAdd(share, token.error, IfThenElse(Gt(passed, zero), through_clip, zero));
  // torch.max with a NaN gives its gradient to both sides
  return IfThenElse(IsNaN(token.clip), token.clip, slope);
}

RLK_FORMULA_END
#endif
