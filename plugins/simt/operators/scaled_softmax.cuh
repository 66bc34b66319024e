// Softmax of rows times a number, and its gradient. A row that is held is read and written once; a longer one is read
// twice.
#include "../skeleton/rows.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_WITH(ScaledSoftmax, (out(y), in(x)), (scale), {
  const bool fits = Row::kLong || simt::fits_f32(scale);
  // The largest product is rounded as the others are: none is above it.
  const auto product = [=](auto d, auto v) { return Mul(v, number(d, scale)); };
  const auto products = row.powers(d, from(x), product);
  const bool is_fit = fits && (Abs(scale) <= 1 || IsFinite(products.largest));
  // Products may be out of range where the differences are not.
  const auto power = [=](auto d, auto v, double best) { return exp(d, Mul(Sub(v, best), scale)); };
  const auto p = row.fit_or(is_fit, products, [=](auto& row) -> simt::RowPowers {
    const simt::RareLane wide{};
    const double sign = CopySign(1.0, scale);
    const double best = Mul(sign, row.largest(wide, from(x), [=](auto, auto v) { return Mul(v, sign); }));
    return {best, row.sum(wide, from(x), [=](auto d, auto v) { return power(d, v, best); })};
  });
  const double share = p.share();
  if (is_fit) {
    row.map(d, to(y), from(x), [=](auto d, auto v) { return softmax_of(d, product(d, v), p.largest, share); });
  } else {
    row.map(simt::RareLane(), to(y), from(x), [=](auto d, auto v) { return Mul(power(d, v, p.largest), share); });
  }
})
RLK_SIMT_ROWS_WITH(ScaledSoftmaxBackward, (out(grad_x), in(grad_y), in(y)), (scale), {
  const double sum = row.sum(d, from(grad_y, y), [](auto, auto grad, auto p) { return Mul(grad, p); });
  row.map_within(simt::fits_f32(scale), to(grad_x), from(grad_y, y),
                 [=](auto d, auto grad, auto p) { return Mul(softmax_gradient(d, grad, p, sum), number(d, scale)); });
})
