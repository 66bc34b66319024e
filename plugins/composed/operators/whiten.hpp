// Masked normalisation to mean 0 and variance 1 over the whole batch.
#include "../tokens.hpp"

RLK_COMPOSED_TOKENS(Whiten, std::nullopt, {
  using Params = decltype(call.params);
  const Tokens<D> tokens(d, call.x, call.mask);
  const Params& params = call.params;
  const V x = in(call.x), zero = Zero(d), one = number(d, 1), eps = number(d, params.eps);
  const auto total = [&](V value) { return tokens.batch(tokens.sums(IfThenElseZero(tokens.mask(), value))); };
  V mean = zero, variance = zero, off = x;
  Mask has_variance = Eq(zero, zero);
  if (call.mean.is_present()) {
    mean = in(of_columns(call.mean));
    variance = in(of_columns(call.variance));
    off = Sub(x, mean);
  } else {
    const V active = tokens.batch(tokens.counts(tokens.mask()));
    const V least = at_least(d, 1, active);
    // In two parts, as differences to it need where x is far from 0.
    const V high = Div(total(x), least), low = Div(total(Sub(x, high)), least);
    mean = Add(high, low);
    off = Sub(Sub(x, high), low);
    const bool is_unbiased = params.std == decltype(params.std)::unbiased;
    const V others = is_unbiased ? Sub(active, one) : active;
    variance = IfThenElseZero(Gt(others, zero), Div(total(Mul(off, off)), at_least(d, 1, others)));
    variance = IfThenElse(IsNaN(mean), mean, variance);
  }
  has_variance = Not(Eq(variance, zero));
  const auto mode = params.eps_mode;
  const V divisor = mode == decltype(mode)::variance         ? Sqrt(Add(variance, eps))
                    : mode == decltype(mode)::variance_floor ? Sqrt(IfThenElse(Lt(variance, eps), eps, variance))
                                                             : Add(Sqrt(variance), eps);
  V y = IfThenElseZero(has_variance, Div(off, divisor));
  if (params.shift_mean == decltype(params.shift_mean)::off) y = Add(y, mean);
  out(call.y, IfThenElseZero(tokens.mask(), y));
})
