// Groups of channels less their mean, divided by their standard deviation, and the gradients.
#include "../rows.hpp"

#include <rlk/formula/norm.hpp>

namespace rlk::composed {

// Each group of channels of [samples, channels, places] as a row.
inline Value groups_as_rows(Value x, int64_t groups) {
  const Dims dims = dims_of(x);
  return reshaped(x, {dims[0] * groups, dims[1] / groups * dims[2]});
}

}  // namespace rlk::composed

RLK_COMPOSED_ROWS_WITH(GroupNorm, (eps), {
  const V x = in(call.x), rows = groups_as_rows(x, call.params.groups);
  const RowMean mean = mean_of_row(d, rows);
  const V n = normal_of(d, rows, mean, root_of_row(d, less_mean(d, rows, mean), eps).root());
  const V weight = in(or_number(of_row(call.weight), 1)), bias = in(or_number(of_row(call.bias), 0));
  out(call.y, MulAdd(reshaped(n, dims_of(x)), weight, bias));
})
RLK_COMPOSED_ROWS_SUMS(GroupNormBackward, (eps), {
  const V x = in(call.x), grad = in(call.grad_y), rows = groups_as_rows(x, call.params.groups);
  const RowMean mean = mean_of_row(d, rows);
  const V rstd = root_of_row(d, less_mean(d, rows, mean), eps).root(), n = normal_of(d, rows, mean, rstd);
  const V g = groups_as_rows(Mul(grad, in(or_number(of_row(call.weight), 1))), call.params.groups);
  const V gradient = normal_gradient(d, g, n, number(d, 1), rstd, row_mean(d, g), row_mean(d, Mul(g, n)));
  out(call.grad_x, reshaped(gradient, dims_of(x)));
  // Of each channel, over its places and all samples.
  const auto of_channels = [&](V terms) {
    return sum_of_rows(reshaped(row_sum(terms), {dims_of(x)[0], dims_of(x)[1]}));
  };
  out(of_columns(call.grad_weight), of_channels(Mul(grad, reshaped(n, dims_of(x)))));
  out(of_columns(call.grad_bias), of_channels(grad));
})
