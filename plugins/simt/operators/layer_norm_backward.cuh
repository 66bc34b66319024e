// Gradients of layer_norm, in fp64 as rms_norm's. A row that is held is read and written once, also for the gradients
// of weight and bias.
#include "../skeleton/norms.cuh"
#include "../skeleton/row_sums.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_SUMS(LayerNormBackward,
                   (out(grad_x), in(grad_y), in(x), or_one(weight), kept(mean), kept(rstd), of_column(grad_weight),
                    of_column(grad_bias)),
                   (eps), (simt::product(grad_y, simt::normal_of_row(d, x, mean, rstd)), grad_y), {
                     const auto of = norm_gradient_of_row(row, from(grad_y, x, weight), eps);
                     row.put(mean, of.mean);
                     row.put(rstd, of.rstd);
                     row.wide_unless(of.is_within, [&](auto d) {
                       row.map(d, to(grad_x), from(grad_y, x, weight), [=](auto d, auto grad, auto v, auto w) {
                         const auto n = simt::normal_of_row(d, v, of.mean, of.rstd);
                         return normal_gradient(d, grad, n, w, of.rstd, of.value, of.along);
                       });
                     });
                   })
