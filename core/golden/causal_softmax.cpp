// Softmax of each query's scores over the keys that it sees, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/causal_softmax.hpp>
#include <rlk/sdk/ops/causal_softmax_backward.hpp>

#include "core/golden/softmax.hpp"

namespace rlk::golden {

DataError causal_softmax(CallOf<sdk::ops::CausalSoftmax>& call) {
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t s = 0; s < call.S; ++s) {
      std::vector<Tracked> seen;
      for (int64_t k = 0; k <= s + call.K - call.S; ++k) seen.emplace_back(call.x.load(b, s, k));
      for (const Tracked& y : softmax_of(seen)) put(call.y, y);
      for (auto k = static_cast<int64_t>(seen.size()); k < call.K; ++k) put(call.y, 0.0);
    }
  }
  return {};
}

DataError causal_softmax_backward(CallOf<sdk::ops::CausalSoftmaxBackward>& call) {
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t s = 0; s < call.S; ++s) {
      const int64_t seen = s + call.K - call.S + 1;
      for (const Tracked& g : softmax_gradient(call.grad_y, call.y, seen, b, s)) put(call.grad_x, g);
      for (int64_t k = seen; k < call.K; ++k) put(call.grad_x, 0.0);
    }
  }
  return {};
}

}  // namespace rlk::golden
