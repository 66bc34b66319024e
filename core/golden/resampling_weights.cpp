// How often samples are to be drawn again: the declaration's formula, fp64.
#include <rlk/sdk/ops/resampling_weights.hpp>

#include "core/golden/operator.hpp"
#include "core/golden/optional.hpp"

namespace rlk::golden {
using namespace sdk::ops::resampling_weights;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

// As the exponential of power times the logarithm, whose error the exponential multiplies.
Tracked power_of(double score, double power) {
  const double value = std::pow(std::fabs(score), power);
  const double exponent = score == 0 ? 0.0 : std::fabs(power * std::log(std::fabs(score)));
  return rounded(value, value * 2 * exponent);
}

}  // namespace

DataError resampling_weights(CallOf<sdk::ops::ResamplingWeights>& call) {
  const Params& params = call.params;
  const auto kept = [&](int64_t b) { return is_kept(call.mask, b); };
  double largest = -std::numeric_limits<double>::infinity(), smallest = -largest;
  bool nan = false;
  for (int64_t b = 0; b < call.B; ++b) {
    if (!kept(b)) continue;
    largest = std::max(largest, call.scores.load(b));
    smallest = std::min(smallest, call.scores.load(b));
    nan |= std::isnan(call.scores.load(b));
  }
  for (int64_t b = 0; b < call.B; ++b) {
    Tracked weight = 0.0;
    if (kept(b)) {
      const double score = call.scores.load(b);
      if (params.method == Method::pow) {
        weight = power_of(score, params.power);
      } else if (nan) {
        weight = std::numeric_limits<double>::quiet_NaN();
      } else if (params.method == Method::max_min) {
        weight = score == largest || score == smallest ? 1.0 : 0.0;
      } else {
        weight = score == largest ? params.best_weight : params.other_weight;
      }
      weight = weight + Tracked(params.eps);
    }
    put(call.weights, weight);
  }
  return {};
}

}  // namespace rlk::golden
