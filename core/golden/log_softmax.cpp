// Logarithm of the softmax of each row, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/log_softmax.hpp>
#include <rlk/sdk/ops/log_softmax_backward.hpp>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

DataError log_softmax(CallOf<sdk::ops::LogSoftmax>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t d = 0; d < call.D; ++d) largest = std::max(largest, call.x.load(n, d));
    TrackedSum sum;
    for (int64_t d = 0; d < call.D; ++d) sum.add(exp(Tracked(call.x.load(n, d)) - Tracked(largest)));
    for (int64_t d = 0; d < call.D; ++d) {
      put(call.y, Tracked(call.x.load(n, d)) - Tracked(largest) - log(sum.total()));
    }
  }
  return {};
}

DataError log_softmax_backward(CallOf<sdk::ops::LogSoftmaxBackward>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    TrackedSum sum;
    for (int64_t d = 0; d < call.D; ++d) sum.add(call.grad_y.load(n, d));
    for (int64_t d = 0; d < call.D; ++d) {
      put(call.grad_x, Tracked(call.grad_y.load(n, d)) - exp(Tracked(call.y.load(n, d))) * sum.total());
    }
  }
  return {};
}

}  // namespace rlk::golden
