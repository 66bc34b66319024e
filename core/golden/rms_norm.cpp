// Rows divided by the root of their mean square, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/rms_norm.hpp>
#include <rlk/sdk/ops/rms_norm_backward.hpp>

#include "core/golden/rms.hpp"

namespace rlk::golden {

DataError rms_norm(CallOf<sdk::ops::RmsNorm>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    const Tracked rstd = reciprocal_root(row_of(call.x, n, call.H), call.params.eps);
    for (int64_t h = 0; h < call.H; ++h) {
      put(call.y, Tracked(call.x.load(n, h)) * rstd * Tracked(or_number(call.weight, h, 1)));
    }
    put(call.rstd, rstd);
  }
  return {};
}

DataError rms_norm_backward(CallOf<sdk::ops::RmsNormBackward>& call) {
  std::vector<TrackedSum> of_weight(static_cast<size_t>(call.H));
  for (int64_t n = 0; n < call.N; ++n) {
    for (const Tracked& gradient : rms_gradient(call, call.x, n, of_weight)) put(call.grad_x, gradient);
  }
  for (const TrackedSum& sum : of_weight) put(call.grad_weight, sum.total());
  return {};
}

}  // namespace rlk::golden
