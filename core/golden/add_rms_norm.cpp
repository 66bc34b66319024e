// Sums of two rows divided by the root of their mean square, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/add_rms_norm.hpp>
#include <rlk/sdk/ops/add_rms_norm_backward.hpp>

#include "core/golden/rms.hpp"

namespace rlk::golden {

DataError add_rms_norm(CallOf<sdk::ops::AddRmsNorm>& call) {
  const Tracked columns(static_cast<double>(call.H));
  for (int64_t n = 0; n < call.N; ++n) {
    std::vector<Tracked> sums;
    TrackedSum moved;  // by how much the mean square moves where each sum is rounded, in halves
    for (int64_t h = 0; h < call.H; ++h) {
      sums.push_back(Tracked(call.x.load(n, h)) + Tracked(call.residual.load(n, h)));
      put(call.sum, sums.back());
      moved.add(std::fabs(sums.back().value) * call.rounding.of(sums.back().value));
    }
    const Tracked rstd = reciprocal_root(sums, call.params.eps);
    const double slope = (moved.total() / columns * rstd * rstd).value;
    for (size_t h = 0; h < sums.size(); ++h) {
      const double weight = or_number(call.weight, static_cast<int64_t>(h), 1);
      put(call.y, sums[h] * rstd * Tracked(weight));
      if (!call.rounding) continue;
      const double rounding =
          std::fabs(rstd.value * weight) * (call.rounding.of(sums[h].value) + std::fabs(sums[h].value) * slope);
      call.y.rounded.push_back(std::isfinite(call.y.value.back()) && std::isfinite(rounding) ? rounding : 0.0);
    }
  }
  return {};
}

DataError add_rms_norm_backward(CallOf<sdk::ops::AddRmsNormBackward>& call) {
  std::vector<TrackedSum> of_weight(static_cast<size_t>(call.H));
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t h = 0; const Tracked& g : rms_gradient(call, call.sum, n, of_weight)) {
      const Tracked gradient = call.grad_sum.present() ? g + Tracked(call.grad_sum.load(n, h)) : g;
      ++h;
      put(call.grad_x, gradient);
      put(call.grad_residual, gradient);
    }
  }
  for (const TrackedSum& sum : of_weight) put(call.grad_weight, sum.total());
  return {};
}

}  // namespace rlk::golden
