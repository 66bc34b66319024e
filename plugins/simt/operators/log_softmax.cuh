// Logarithm of the softmax of rows and its gradient. A row that is held is read and written once; a longer one is read
// twice.
#include "../skeleton/rows.cuh"

#include <rlk/formula/norm.hpp>

RLK_SIMT_ROWS_OF_BLOCKS(LogSoftmax, (out(y), in(x)), {
  const auto p = row.powers(d, from(x));
  const double log_sum = p.log_sum();
  row.map(d, to(y), from(x), [=](auto d, auto v) { return log_softmax_of(d, v, p.largest, log_sum); });
})
RLK_SIMT_ROWS(LogSoftmaxBackward, (out(grad_x), in(grad_y), in(y)), {
  const double sum = row.sum(d, from(grad_y), [](auto, auto grad) { return grad; });
  row.map(d, to(grad_x), from(grad_y, y),
          [=](auto d, auto grad, auto p) { return log_softmax_gradient(d, grad, p, sum); });
})
