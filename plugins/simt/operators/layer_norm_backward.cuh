// Gradients of layer_norm, in fp64 as rms_norm's. A row that is held is read and written once; the gradients of weight
// and bias read it once more.
#include "../skeleton/norms.cuh"
#include "../skeleton/row_sums.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_SUMS(LayerNormBackward,
                   (out(grad_x), in(grad_y), in(x), or_one(weight), kept(mean), kept(rstd), of_column(grad_weight),
                    of_column(grad_bias)),
                   (eps), (Mul(grad_y, normal_of(d, x, mean, rstd)), grad_y), {
                     const auto m = moments_of_row(row, from(x), eps);
                     const auto gradient = [](auto, auto grad, auto, auto w) { return Mul(grad, w); };
                     const auto along = [=](auto d, auto grad, auto v, auto w) {
                       return Mul(Mul(grad, w), normal_of(d, v, m.mean, m.rstd));
                     };
                     const auto means = means_of_row(row, from(grad_y, x, weight), m, gradient, along);
                     row.wide_unless(means.is_within, [&](auto d) {
                       row.map(d, to(grad_x), from(grad_y, x, weight), [=](auto d, auto grad, auto v, auto w) {
                         const auto n = normal_of(d, v, m.mean, m.rstd);
                         return normal_gradient(d, grad, n, w, m.rstd, means.value, means.along);
                       });
                     });
                     row.put(mean, m.mean);
                     row.put(rstd, m.rstd);
                   })
