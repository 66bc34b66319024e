// Rows less their mean, divided by their standard deviation, and the gradients: the declarations' formulas, fp64.
#include <rlk/sdk/ops/layer_norm.hpp>
#include <rlk/sdk/ops/layer_norm_backward.hpp>

#include "core/golden/moments.hpp"

namespace rlk::golden {

DataError layer_norm(CallOf<sdk::ops::LayerNorm>& call) {
  Groups{call.N, call.H, 1, call.H}.normalise(call, [&](const Moments& m) {
    put(call.mean, m.mean);
    put(call.rstd, m.rstd);
  });
  return {};
}

DataError layer_norm_backward(CallOf<sdk::ops::LayerNormBackward>& call) {
  Groups{call.N, call.H, 1, call.H}.gradients(call);
  return {};
}

}  // namespace rlk::golden
