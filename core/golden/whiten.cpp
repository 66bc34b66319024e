// Masked normalisation over the whole batch: the declaration's formula, fp64.
#include <rlk/sdk/ops/whiten.hpp>

#include "core/golden/mean.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
using namespace sdk::ops::whiten;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

Tracked divisor_of(const Params& params, Tracked variance) {
  const Tracked eps = params.eps;
  if (params.eps_mode == EpsMode::deviation) return sqrt(variance) + eps;
  if (params.eps_mode == EpsMode::variance) return sqrt(variance + eps);
  return sqrt(variance.value < params.eps ? eps : variance);
}

}  // namespace

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
  const Tracked divisor = divisor_of(call.params, variance);
  rows.for_each_token([&](int64_t b, int64_t t) {
    const Tracked y = (Tracked(call.x.load(b, t)) - mean) / divisor;
    const Tracked shifted = call.params.shift_mean == ShiftMean::off ? y + mean : y;
    put(call.y, rows.kept(call.mask, b, t) ? shifted : Tracked(0.0));
  });
  return {};
}

}  // namespace rlk::golden
