// Softmax of rows and its gradient. A row that is held is read and written once; a longer one is read twice.
#include "../skeleton/rows.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_OF_BLOCKS(Softmax, (out(y), in(x)), {
  const auto p = row.powers(d, from(x));
  const double share = p.share();
  row.map(d, to(y), from(x), [=](auto d, auto v) { return softmax_of(d, v, p.largest, share); });
})
RLK_SIMT_ROWS(SoftmaxBackward, (out(grad_x), in(grad_y), in(y)), {
  const double sum = row.sum(d, from(grad_y, y), [](auto, auto grad, auto p) { return Mul(grad, p); });
  row.map(d, to(grad_x), from(grad_y, y), [=](auto d, auto grad, auto p) { return softmax_gradient(d, grad, p, sum); });
})
