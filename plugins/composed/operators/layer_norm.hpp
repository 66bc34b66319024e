// Rows less their mean, divided by their standard deviation, and the gradients.
#include "../rows.hpp"

#include <rlk/formula/norm.hpp>

RLK_COMPOSED_ROWS_WITH(LayerNorm, (eps), {
  const V x = in(call.x);
  const RowMean mean = mean_of_row(d, x);
  const V rstd = root_of_row(d, less_mean(d, x, mean), eps).root();
  out(call.y, MulAdd(normal_of(d, x, mean, rstd), in(or_number(call.weight, 1)), in(or_number(call.bias, 0))));
  out(of_row(call.mean), mean.sum());
  out(of_row(call.rstd), rstd);
})
RLK_COMPOSED_ROWS_SUMS(LayerNormBackward, (eps), {
  const V grad = in(call.grad_y), x = in(call.x), weight = in(or_number(call.weight, 1));
  const RowMean mean = mean_of_row(d, x);
  const V rstd = root_of_row(d, less_mean(d, x, mean), eps).root(), n = normal_of(d, x, mean, rstd);
  const V g = Mul(grad, weight);
  out(call.grad_x, normal_gradient(d, grad, n, weight, rstd, row_mean(d, g), row_mean(d, Mul(g, n))));
  out(of_columns(call.grad_weight), sum_of_rows(Mul(grad, n)));
  out(of_columns(call.grad_bias), sum_of_rows(grad));
})
