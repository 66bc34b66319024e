// Masked normalisation over the whole batch: the declaration's formula, fp64.
#include <rlk/sdk/ops/whiten.hpp>

#include "core/golden/mean.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
using namespace sdk::ops::whiten;  // NOLINT(google-build-using-namespace): its enumerations

DataError whiten(CallOf<sdk::ops::Whiten>& call) {
  const Sequences rows(call.x, View());
  Numbers numbers;
  rows.for_each_token([&](int64_t b, int64_t t) {
    if (rows.kept(call.mask, b, t)) numbers.emplace_back(call.x.load(b, t));
  });
  Tracked mean = 0.0, variance = 1.0;
  if (call.mean.present()) {
    mean = call.mean.load(0);
    variance = call.variance.load(0);
  } else if (!numbers.empty()) {
    mean = mean_of(numbers);
    variance = variance_of(numbers, mean, call.params.std == Std::unbiased);
  }
  const Tracked eps = call.params.eps;
  const bool is_below = variance.value < call.params.eps;
  const Tracked divisor = call.params.eps_mode == EpsMode::deviation  ? sqrt(variance) + eps
                          : call.params.eps_mode == EpsMode::variance ? sqrt(variance + eps)
                                                                      : sqrt(is_below ? eps : variance);
  rows.for_each_token([&](int64_t b, int64_t t) {
    const Tracked y = (Tracked(call.x.load(b, t)) - mean) / divisor;
    const Tracked shifted = call.params.shift_mean == ShiftMean::off ? y + mean : y;
    put(call.y, rows.kept(call.mask, b, t) ? shifted : Tracked(0.0));
  });
  return {};
}

}  // namespace rlk::golden
