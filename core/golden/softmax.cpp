// Softmax of each row, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/softmax.hpp>
#include <rlk/sdk/ops/softmax_backward.hpp>

#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

DataError softmax(CallOf<sdk::ops::Softmax>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t d = 0; d < call.D; ++d) largest = std::max(largest, call.x.load(n, d));
    TrackedSum sum;
    std::vector<Tracked> powers;
    for (int64_t d = 0; d < call.D; ++d) {
      powers.push_back(exp(Tracked(call.x.load(n, d)) - Tracked(largest)));
      sum.add(powers.back());
    }
    for (const Tracked& power : powers) put(call.y, power / sum.total());
  }
  return {};
}

DataError softmax_backward(CallOf<sdk::ops::SoftmaxBackward>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    TrackedSum sum;
    for (int64_t d = 0; d < call.D; ++d) sum.add(Tracked(call.grad_y.load(n, d)) * Tracked(call.y.load(n, d)));
    for (int64_t d = 0; d < call.D; ++d) {
      put(call.grad_x, Tracked(call.y.load(n, d)) * (Tracked(call.grad_y.load(n, d)) - sum.total()));
    }
  }
  return {};
}

}  // namespace rlk::golden
