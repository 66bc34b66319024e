// Softmax of each row, and the gradient: the declarations' formulas, fp64.
#include "core/golden/softmax.hpp"

#include <rlk/sdk/ops/softmax.hpp>
#include <rlk/sdk/ops/softmax_backward.hpp>

namespace rlk::golden {

DataError softmax(CallOf<sdk::ops::Softmax>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    std::vector<Tracked> scores;
    for (int64_t d = 0; d < call.D; ++d) scores.emplace_back(call.x.load(n, d));
    for (const Tracked& y : softmax_of(scores)) put(call.y, y);
  }
  return {};
}

DataError softmax_backward(CallOf<sdk::ops::SoftmaxBackward>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    for (const Tracked& g : softmax_gradient(call.grad_y, call.y, call.D, n)) put(call.grad_x, g);
  }
  return {};
}

}  // namespace rlk::golden
