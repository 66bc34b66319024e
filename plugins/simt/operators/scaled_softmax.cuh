// Softmax of rows times a number, and its gradient. A row that is held is read and written once; a longer one is read
// twice.
#include "../skeleton/rows.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_WITH(ScaledSoftmax, (out(y), in(x)), (scale), {
  const bool fits = Row::kLong || simt::fits_f32(scale);
  // The largest product is rounded as the others are: none is above it.
  const auto product = [=](auto d, auto v) { return Mul(v, number(d, scale)); };
  const auto p = row.powers(d, from(x), product);
  if (fits && (Abs(scale) <= 1 || IsFinite(p.largest))) {
    const double share = p.share();
    row.map(d, to(y), from(x), [=](auto d, auto v) { return softmax_of(d, product(d, v), p.largest, share); });
  } else {
    // Products may be out of range where the differences are not.
    const simt::RareLane wide{};
    const double sign = CopySign(1.0, scale);
    const double best = Mul(sign, row.largest(wide, from(x), [=](auto, auto v) { return Mul(v, sign); }));
    const auto power = [=](auto d, auto v) { return exp(d, Mul(Sub(v, best), scale)); };
    const double share = 1 / row.sum(wide, from(x), power);
    row.map(wide, to(y), from(x), [=](auto d, auto v) { return Mul(power(d, v), share); });
  }
})
RLK_SIMT_ROWS_WITH(ScaledSoftmaxBackward, (out(grad_x), in(grad_y), in(y)), (scale), {
  const double sum = row.sum(d, from(grad_y, y), [](auto, auto grad, auto p) { return Mul(grad, p); });
  row.map_within(simt::fits_f32(scale), to(grad_x), from(grad_y, y),
                 [=](auto d, auto grad, auto p) { return Mul(softmax_gradient(d, grad, p, sum), number(d, scale)); });
})
