// Gradients of add_rms_norm, as rms_norm's.
#include "../skeleton/norms.cuh"
#include "../skeleton/row_sums.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_SUMS(AddRmsNormBackward,
                   (out(grad_x), out(grad_residual), in(grad_y), in(sum), or_zero(grad_sum), or_one(weight), kept(rstd),
                    of_column(grad_weight)),
                   (eps), (Mul(Mul(grad_y, sum), rstd)), {
                     const Lane<double> wide{};
                     const double r = root_of_row(row, from(sum), eps).root();
                     const double total = row.sum(
                         wide, from(grad_y, sum, weight),
                         [=](auto d, auto grad, auto v, auto w) { return rms_gradient_along(d, grad, v, w, r); });
                     const double mean = total / static_cast<double>(row.columns());
                     row.map(wide, to(grad_x, grad_residual), from(grad_y, sum, weight, grad_sum),
                             [=](auto d, auto grad, auto v, auto w, auto more) {
                               const double gradient = rms_gradient(d, grad, v, w, r, mean, more);
                               return simt::both(gradient, gradient);
                             });
                     row.put(rstd, r);
                   })
