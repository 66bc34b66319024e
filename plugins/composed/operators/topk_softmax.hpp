// The experts of each token with the largest scores, and their shares.
#include "../order.hpp"

#include <rlk/formula/norm.hpp>

RLK_COMPOSED_ROWS(TopkSoftmax, {
  const V x = in(call.x);
  const RowPowers powers = powers_of_row(d, x);
  const V shares = softmax_of(d, x, powers.largest, powers.share(d));
  const V experts = order_of(d, x, call.x.dtype, true, call.params.k), weights = at_column(shares, experts);
  const bool is_renormalized = call.params.renormalize == decltype(call.params.renormalize)::on;
  out(call.weights, is_renormalized ? Div(weights, row_sum(weights)) : weights);
  recorder.output(call.ids, experts.node);
})
