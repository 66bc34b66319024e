// How often each sample of a batch is to be drawn again.
#include "../tokens.hpp"

RLK_COMPOSED_TOKENS(ResamplingWeights, std::nullopt, {
  using Method = decltype(call.params.method);
  const auto& params = call.params;
  const Tokens<D> samples(d, of_columns(call.scores), of_columns(call.mask));
  const V score = in(of_columns(call.scores)), zero = Zero(d), one = number(d, 1);
  V weight = one;
  if (params.method == Method::pow) {
    // As a product where the power is a small whole number: no logarithm rounds it.
    const double power = params.power;
    const V size = Abs(score);
    if (power == std::floor(power) && power <= 8) {
      for (int i = 0; i < static_cast<int>(power); ++i) weight = Mul(weight, size);
    } else {
      weight = exp(d, Mul(number(d, power), log(d, size)));
    }
  } else {
    const V largest = row_largest(IfThenElse(samples.mask(), score, Neg(Inf(d))));
    const V smallest = Neg(row_largest(IfThenElse(samples.mask(), Neg(score), Neg(Inf(d)))));
    const Mask is_best = Eq(score, largest);
    weight = params.method == Method::max_min
                 ? IfThenElse(Or(is_best, Eq(score, smallest)), one, zero)
                 : IfThenElse(is_best, number(d, params.best_weight), number(d, params.other_weight));
    weight = IfThenElse(IsNaN(largest), largest, weight);
  }
  out(of_columns(call.weights), IfThenElseZero(samples.mask(), Add(weight, number(d, params.eps))));
})
