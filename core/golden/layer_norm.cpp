// Rows less their mean, divided by their standard deviation, and the gradients: the declarations' formulas, fp64.
#include <rlk/sdk/ops/layer_norm.hpp>
#include <rlk/sdk/ops/layer_norm_backward.hpp>

#include "core/golden/moments.hpp"

namespace rlk::golden {

DataError layer_norm(CallOf<sdk::ops::LayerNorm>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    const Moments m(call.H, call.params.eps, [&](int64_t h) { return call.x.load(n, h); });
    for (int64_t h = 0; h < call.H; ++h) {
      const Tracked scaled = m.normal(call.x.load(n, h)) * Tracked(or_number(call.weight, h, 1));
      put(call.y, scaled + Tracked(or_number(call.bias, h, 0)));
    }
    put(call.mean, m.mean);
    put(call.rstd, m.rstd);
  }
  return {};
}

DataError layer_norm_backward(CallOf<sdk::ops::LayerNormBackward>& call) {
  std::vector<TrackedSum> of_weight(static_cast<size_t>(call.H)), of_bias(of_weight);
  for (int64_t n = 0; n < call.N; ++n) {
    const Moments m(call.H, call.params.eps, [&](int64_t h) { return call.x.load(n, h); });
    std::vector<Tracked> scaled, normal;
    for (int64_t h = 0; h < call.H; ++h) {
      const Tracked grad = call.grad_y.load(n, h);
      scaled.push_back(grad * Tracked(or_number(call.weight, h, 1)));
      normal.push_back(m.normal(call.x.load(n, h)));
      of_weight[static_cast<size_t>(h)].add(grad * normal.back());
      of_bias[static_cast<size_t>(h)].add(grad);
    }
    for (const Tracked& gradient : m.gradient(scaled, normal)) put(call.grad_x, gradient);
  }
  for (const TrackedSum& sum : of_weight) put(call.grad_weight, sum.total());
  for (const TrackedSum& sum : of_bias) put(call.grad_bias, sum.total());
  return {};
}

}  // namespace rlk::golden
