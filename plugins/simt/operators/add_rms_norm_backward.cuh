// Gradients of add_rms_norm, as rms_norm's.
#include "../skeleton/norms.cuh"
#include "../skeleton/row_sums.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_SUMS(AddRmsNormBackward,
                   (out(grad_x), out(grad_residual), in(grad_y), in(sum), or_zero(grad_sum), or_one(weight), kept(rstd),
                    of_column(grad_weight)),
                   (eps), (Mul(grad_y, Mul(sum, number(d, rstd)))), {
                     const double r = root_of_row(row, from(sum), eps).root();
                     const auto mean = mean_of_row(
                         row, from(grad_y, sum, weight), r,
                         [=](auto d, auto grad, auto v, auto w) { return rms_gradient_along(d, grad, v, w, r); });
                     row.wide_unless(mean.is_within, [&](auto d) {
                       row.map(d, to(grad_x, grad_residual), from(grad_y, sum, weight, grad_sum),
                               [=](auto d, auto grad, auto v, auto w, auto more) {
                                 const auto gradient = rms_gradient(d, grad, v, w, r, mean.value, more);
                                 return simt::both(gradient, gradient);
                               });
                     });
                     row.put(rstd, r);
                   })
