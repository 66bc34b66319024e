// Rows divided by the root of their mean square, alone and of a sum of two, and their gradients.
#include "../rows.hpp"

#include <rlk/formula/norm.hpp>

RLK_COMPOSED_ROWS_WITH(RmsNorm, (eps), {
  const V x = in(call.x);
  const RowRoot root = root_of_row(d, x, eps);
  out(call.y, rms_of(d, x, root.scale, root.of_scaled, in(or_number(call.weight, 1))));
  out(of_row(call.rstd), root.root());
})
RLK_COMPOSED_ROWS_SUMS(RmsNormBackward, (eps), {
  const V grad = in(call.grad_y), x = in(call.x), weight = in(or_number(call.weight, 1));
  const V root = root_of_row(d, x, eps).root();
  const V mean = row_mean(d, rms_gradient_along(d, grad, x, weight, root));
  out(call.grad_x, rms_gradient(d, grad, x, weight, root, mean, Zero(d)));
  out(of_columns(call.grad_weight), sum_of_rows(Mul(Mul(grad, x), root)));
})
RLK_COMPOSED_ROWS_WITH(AddRmsNorm, (eps), {
  const V sum = Add(in(call.x), in(call.residual));
  const RowRoot root = root_of_row(d, sum, eps);
  out(call.y, rms_of(d, sum, root.scale, root.of_scaled, in(or_number(call.weight, 1))));
  out(call.sum, sum);
})
RLK_COMPOSED_ROWS_SUMS(AddRmsNormBackward, (eps), {
  const V grad = in(call.grad_y), sum = in(call.sum), weight = in(or_number(call.weight, 1));
  const V root = root_of_row(d, sum, eps).root();
  const V mean = row_mean(d, rms_gradient_along(d, grad, sum, weight, root));
  const V gradient = rms_gradient(d, grad, sum, weight, root, mean, in(or_number(call.grad_sum, 0)));
  out(call.grad_x, gradient);
  out(call.grad_residual, gradient);
  out(of_columns(call.grad_weight), sum_of_rows(Mul(Mul(grad, sum), root)));
})
