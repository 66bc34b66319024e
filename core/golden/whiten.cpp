// Masked normalisation over the whole batch: the declaration's formula, fp64.
#include <rlk/sdk/ops/whiten.hpp>

#include "core/golden/mean.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {
using namespace sdk::ops::whiten;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

Tracked variance_of(const Params& params, const Numbers& numbers, Tracked mean) {
  TrackedSum squares;
  for (const Tracked& x : numbers) squares.add((x - mean) * (x - mean));
  const bool unbiased = params.std == Std::unbiased;
  const double n = static_cast<double>(numbers.size()) - (unbiased ? 1 : 0);
  return n > 0 ? squares.total() / Tracked(n) : Tracked(0.0);
}

Tracked divisor_of(const Params& params, Tracked variance) {
  const Tracked eps = params.eps;
  if (params.eps_mode == EpsMode::deviation) return sqrt(variance) + eps;
  if (params.eps_mode == EpsMode::variance) return sqrt(variance + eps);
  return sqrt(variance.value < params.eps ? eps : variance);
}

}  // namespace

DataError whiten(CallOf<sdk::ops::Whiten>& call) {
  const auto kept = [&](int64_t b, int64_t t) { return !call.mask.present() || call.mask.load_int(b, t) != 0; };
  Numbers numbers;
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t t = 0; t < call.L; ++t) {
      if (kept(b, t)) numbers.emplace_back(call.x.load(b, t));
    }
  }
  Tracked mean = 0.0, variance = 1.0;
  if (call.mean.present()) {
    mean = call.mean.load(0);
    variance = call.variance.load(0);
  } else if (!numbers.empty()) {
    mean = mean_of(numbers);
    variance = variance_of(call.params, numbers, mean);
  }
  const Tracked divisor = divisor_of(call.params, variance);
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t t = 0; t < call.L; ++t) {
      Tracked y = 0.0;
      if (kept(b, t)) {
        y = (Tracked(call.x.load(b, t)) - mean) / divisor;
        if (call.params.shift_mean == ShiftMean::off) y = y + mean;
      }
      put(call.y, y);
    }
  }
  return {};
}

}  // namespace rlk::golden
