// Softmax of each row times a number, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/scaled_softmax.hpp>
#include <rlk/sdk/ops/scaled_softmax_backward.hpp>

#include "core/golden/softmax.hpp"

namespace rlk::golden {

DataError scaled_softmax(CallOf<sdk::ops::ScaledSoftmax>& call) {
  const Tracked scale(call.params.scale, std::fabs(call.params.scale));
  for (int64_t n = 0; n < call.N; ++n) {
    std::vector<Tracked> scores;
    double largest = -kInfinity, best = -kInfinity;
    const double sign = std::copysign(1.0, call.params.scale);
    for (int64_t d = 0; d < call.D; ++d) {
      const double x = call.x.load(n, d);
      scores.push_back(scale * Tracked(x));
      largest = std::max(largest, scores.back().value);
      best = std::max(best, sign * x);
    }
    // Where the maximum is beyond fp64 and x is not: s x - m as s times a difference.
    for (int64_t d = 0; d < call.D && std::isinf(largest) && std::isfinite(best); ++d) {
      scores[static_cast<size_t>(d)] = scale * (Tracked(call.x.load(n, d)) - Tracked(sign * best));
    }
    for (const Tracked& y : softmax_of(scores)) put(call.y, y);
  }
  return {};
}

DataError scaled_softmax_backward(CallOf<sdk::ops::ScaledSoftmaxBackward>& call) {
  const Tracked scale(call.params.scale, std::fabs(call.params.scale));
  for (int64_t n = 0; n < call.N; ++n) {
    for (const Tracked& g : softmax_gradient(call.grad_y, call.y, call.D, n)) put(call.grad_x, scale * g);
  }
  return {};
}

}  // namespace rlk::golden
