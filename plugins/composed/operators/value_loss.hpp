// The clipped squared error of a value function, per token and reduced, and its gradient.
#include "../tokens.hpp"

#include <rlk/formula/value_loss.hpp>

RLK_COMPOSED_TOKENS(ValueLoss, refuse_packed(call.cu_seqlens), {
  const Tokens<D> tokens(d, call.values, call.mask);
  const double eps = call.old_values.is_present() ? call.params.clip_eps : std::numeric_limits<double>::infinity();
  const auto clip = clip_value(d, in(call.values), in(call.returns), in(or_number(call.old_values, 0)), eps);
  const V loss = IfThenElseZero(tokens.mask(), value_loss_of(d, clip));
  const V active = tokens.counts(tokens.mask());
  const TokenWeights<D> weights(d, call.params, tokens, active);
  out(call.token_loss, loss);
  out(of_columns(call.loss), tokens.batch(weights.weighted(tokens.sums(loss), active)));
  const V clipped = tokens.counts(And(tokens.mask(), Gt(clip.clip, clip.plain)));
  out(of_columns(call.clip_fraction), Div(tokens.batch(clipped), at_least(d, 1, tokens.batch(active))));
})
RLK_COMPOSED_TOKENS(ValueLossBackward, refuse_packed(call.cu_seqlens), {
  const Tokens<D> tokens(d, call.values, call.mask);
  const double eps = call.old_values.is_present() ? call.params.clip_eps : std::numeric_limits<double>::infinity();
  const V active = tokens.counts(tokens.mask());
  const TokenWeights<D> weights(d, call.params, tokens, active);
  const V of_loss = weights.weighted(in(call.grad_loss), active);
  const V slope = value_slope_of(d, in(call.values), in(call.returns), in(or_number(call.old_values, 0)), eps,
                                 formula::gradient_at_bound(call.params.clamp_gradient));
  out(call.grad_values,
      IfThenElseZero(tokens.mask(), Mul(Add(of_loss, in(or_number(call.grad_token_loss, 0))), slope)));
})
