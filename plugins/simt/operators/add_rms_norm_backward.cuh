// Gradients of add_rms_norm, as rms_norm's.
#include "../skeleton/norms.cuh"
#include "../skeleton/row_sums.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_SUMS(AddRmsNormBackward,
                   (out(grad_x), out(grad_residual), in(grad_y), in(sum), or_zero(grad_sum), or_one(weight), kept(rstd),
                    of_column(grad_weight)),
                   (eps), (simt::product(grad_y, Mul(sum, number(d, rstd)))), {
                     const auto of = rms_gradient_of_row(row, from(grad_y, sum, weight), eps);
                     row.put(rstd, of.root);
                     row.wide_unless(of.is_within, [&](auto d) {
                       row.map(d, to(grad_x, grad_residual), from(grad_y, sum, weight, grad_sum),
                               [=](auto d, auto grad, auto v, auto w, auto more) {
                                 const auto gradient = rms_gradient(d, grad, v, w, of.root, of.mean, more);
                                 return simt::both(gradient, gradient);
                               });
                     });
                   })
