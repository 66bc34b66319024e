// Sums, means, maxima and running sums of rows: the declarations' formulas, fp64.
#include <rlk/sdk/ops/argmax.hpp>
#include <rlk/sdk/ops/cumsum.hpp>
#include <rlk/sdk/ops/cumsum_backward.hpp>
#include <rlk/sdk/ops/max.hpp>
#include <rlk/sdk/ops/mean.hpp>
#include <rlk/sdk/ops/sum.hpp>

#include "core/golden/moved.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

Tracked sum_of_row(const View& x, int64_t n, int64_t columns) {
  TrackedSum sum;
  for (int64_t d = 0; d < columns; ++d) sum.add(x.load(n, d));
  return sum.total();
}

int64_t largest_of_row(const View& x, int64_t n, int64_t columns) {
  int64_t best = 0;
  for (int64_t d = 1; d < columns && !std::isnan(x.load(n, best)); ++d) {
    if (std::isnan(x.load(n, d)) || x.load(n, d) > x.load(n, best)) best = d;
  }
  return best;
}

}  // namespace

DataError sum(CallOf<sdk::ops::Sum>& call) {
  for (int64_t n = 0; n < call.N; ++n) put(call.y, sum_of_row(call.x, n, call.D));
  return {};
}

DataError mean(CallOf<sdk::ops::Mean>& call) {
  const Tracked count = static_cast<double>(call.D);
  for (int64_t n = 0; n < call.N; ++n) put(call.y, sum_of_row(call.x, n, call.D) / count);
  return {};
}

DataError max(CallOf<sdk::ops::Max>& call) {
  for (int64_t n = 0; n < call.N; ++n) put(call.y, call.x.load(n, largest_of_row(call.x, n, call.D)));
  return {};
}

DataError argmax(CallOf<sdk::ops::Argmax>& call) {
  for (int64_t n = 0; n < call.N; ++n) put_integer(call.index, largest_of_row(call.x, n, call.D));
  return {};
}

DataError cumsum(CallOf<sdk::ops::Cumsum>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    TrackedSum sum;
    for (int64_t d = 0; d < call.D; ++d) {
      sum.add(call.x.load(n, d));
      put(call.y, sum.total());
    }
  }
  return {};
}

DataError cumsum_backward(CallOf<sdk::ops::CumsumBackward>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    std::vector<Tracked> gradients(static_cast<size_t>(call.D));
    TrackedSum sum;
    for (int64_t d = call.D - 1; d >= 0; --d) {
      sum.add(call.grad_y.load(n, d));
      gradients[static_cast<size_t>(d)] = sum.total();
    }
    for (const Tracked& gradient : gradients) put(call.grad_x, gradient);
  }
  return {};
}

}  // namespace rlk::golden
