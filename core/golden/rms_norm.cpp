// Rows divided by the root of their mean square, and the gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/rms_norm.hpp>
#include <rlk/sdk/ops/rms_norm_backward.hpp>

#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

// rstd of row n
Tracked reciprocal_root(const View& x, int64_t n, int64_t columns, double eps) {
  TrackedSum squares;
  for (int64_t h = 0; h < columns; ++h) squares.add(Tracked(x.load(n, h)) * Tracked(x.load(n, h)));
  return Tracked(1.0) / sqrt(squares.total() / Tracked(static_cast<double>(columns)) + Tracked(eps));
}

Tracked factor(const View& weight, int64_t h) {
  return weight.present() ? weight.load(h) : 1.0;
}

}  // namespace

DataError rms_norm(CallOf<sdk::ops::RmsNorm>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    const Tracked rstd = reciprocal_root(call.x, n, call.H, call.params.eps);
    for (int64_t h = 0; h < call.H; ++h) put(call.y, Tracked(call.x.load(n, h)) * rstd * factor(call.weight, h));
    put(call.rstd, rstd);
  }
  return {};
}

DataError rms_norm_backward(CallOf<sdk::ops::RmsNormBackward>& call) {
  std::vector<TrackedSum> of_weight(static_cast<size_t>(call.H));
  for (int64_t n = 0; n < call.N; ++n) {
    const Tracked r = reciprocal_root(call.x, n, call.H, call.params.eps);
    const auto x = [&](int64_t h) { return Tracked(call.x.load(n, h)); };
    const auto scaled = [&](int64_t h) { return Tracked(call.grad_y.load(n, h)) * factor(call.weight, h); };
    TrackedSum products;
    for (int64_t h = 0; h < call.H; ++h) products.add(scaled(h) * x(h));
    const Tracked mean = products.total() / Tracked(static_cast<double>(call.H));
    for (int64_t h = 0; h < call.H; ++h) {
      put(call.grad_x, r * (scaled(h) - x(h) * r * r * mean));
      of_weight[static_cast<size_t>(h)].add(Tracked(call.grad_y.load(n, h)) * x(h) * r);
    }
  }
  for (const TrackedSum& sum : of_weight) put(call.grad_weight, sum.total());
  return {};
}

}  // namespace rlk::golden
