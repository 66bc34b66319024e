// Gradients of rms_norm. In fp64 where products of three numbers and a cube may leave the range of fp32 and the
// gradient does not. A row that is held is read and written once, also for the weight's gradient.
#include "../skeleton/norms.cuh"
#include "../skeleton/row_sums.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_SUMS(RmsNormBackward,
                   (out(grad_x), in(grad_y), in(x), or_one(weight), kept(rstd), of_column(grad_weight)), (eps),
                   (simt::product(grad_y, Mul(x, number(d, rstd)))), {
                     const auto of = rms_gradient_of_row(row, from(grad_y, x, weight), eps);
                     row.put(rstd, of.root);
                     row.wide_unless(of.is_within, [&](auto d) {
                       row.map(d, to(grad_x), from(grad_y, x, weight), [=](auto d, auto grad, auto v, auto w) {
                         return rms_gradient(d, grad, v, w, of.root, of.mean, number(d, 0));
                       });
                     });
                   })
