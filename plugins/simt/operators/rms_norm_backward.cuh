// Gradients of rms_norm. In fp64 where products of three numbers and a cube may leave the range of fp32 and the
// gradient does not. A row that is held is read and written once; the weight's gradient reads it once more.
#include "../skeleton/norms.cuh"
#include "../skeleton/row_sums.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_SUMS(RmsNormBackward,
                   (out(grad_x), in(grad_y), in(x), or_one(weight), kept(rstd), of_column(grad_weight)), (eps),
                   (Mul(grad_y, Mul(x, number(d, rstd)))), {
                     const double r = root_of_row(row, from(x), eps).root();
                     const auto mean = mean_of_row(
                         row, from(grad_y, x, weight), r,
                         [=](auto d, auto grad, auto v, auto w) { return rms_gradient_along(d, grad, v, w, r); });
                     row.wide_unless(mean.is_within, [&](auto d) {
                       row.map(d, to(grad_x), from(grad_y, x, weight), [=](auto d, auto grad, auto v, auto w) {
                         return rms_gradient(d, grad, v, w, r, mean.value, number(d, 0));
                       });
                     });
                     row.put(rstd, r);
                   })
