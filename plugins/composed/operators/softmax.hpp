// Softmax of rows, its logarithm, and their gradients.
#include "../rows.hpp"

#include <rlk/formula/norm.hpp>

RLK_COMPOSED_ROWS(Softmax, {
  const V x = in(call.x);
  const RowPowers p = powers_of_row(d, x);
  out(call.y, softmax_of(d, x, p.largest, p.share(d)));
})
RLK_COMPOSED_ROWS(SoftmaxBackward, {
  const V grad = in(call.grad_y), y = in(call.y);
  out(call.grad_x, softmax_gradient(d, grad, y, row_sum(Mul(grad, y))));
})
RLK_COMPOSED_ROWS(LogSoftmax, {
  const V x = in(call.x);
  const RowPowers p = powers_of_row(d, x);
  out(call.y, log_softmax_of(d, x, p.largest, p.log_sum(d)));
})
RLK_COMPOSED_ROWS(LogSoftmaxBackward, {
  const V grad = in(call.grad_y), y = in(call.y);
  out(call.grad_x, log_softmax_gradient(d, grad, y, row_sum(grad)));
})
RLK_COMPOSED_ROWS_WITH(ScaledSoftmax, (scale), {
  const V x = Mul(in(call.x), number(d, scale));
  const RowPowers p = powers_of_row(d, x);
  out(call.y, softmax_of(d, x, p.largest, p.share(d)));
})
RLK_COMPOSED_ROWS_WITH(ScaledSoftmaxBackward, (scale), {
  const V grad = in(call.grad_y), y = in(call.y);
  out(call.grad_x, Mul(softmax_gradient(d, grad, y, row_sum(Mul(grad, y))), number(d, scale)));
})
