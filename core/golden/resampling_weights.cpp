// How often samples are to be drawn again: the declaration's formula, fp64.
#include <rlk/ops/resampling_weights.h>

#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

// As the exponential of power times the logarithm, whose error the exponential multiplies.
Tracked power_of(double score, double power) {
  const double value = std::pow(std::fabs(score), power);
  const double exponent = score == 0 ? 0.0 : std::fabs(power * std::log(std::fabs(score)));
  return rounded(value, value * 2 * exponent);
}

}  // namespace

Answer answer_resampling_weights(const Call& call) {
  const auto& params = call.params_as<rlk_resampling_weights_params>();
  const View &scores = call[RLK_RESAMPLING_WEIGHTS_IN_SCORES], &mask = call[RLK_RESAMPLING_WEIGHTS_IN_MASK];
  const auto kept = [&](int64_t b) { return !mask.present() || mask.load_int(b) != 0; };
  double largest = -std::numeric_limits<double>::infinity(), smallest = -largest;
  bool nan = false;
  for (int64_t b = 0; b < scores.shape[0]; ++b) {
    if (!kept(b)) continue;
    largest = std::max(largest, scores.load(b));
    smallest = std::min(smallest, scores.load(b));
    nan |= std::isnan(scores.load(b));
  }
  Answer answer;
  answer.outputs.resize(RLK_RESAMPLING_WEIGHTS_N_OUTPUTS);
  for (int64_t b = 0; b < scores.shape[0]; ++b) {
    Tracked weight = 0.0;
    if (kept(b)) {
      const double score = scores.load(b);
      if (params.method == RLK_RESAMPLING_WEIGHTS_METHOD_POW) {
        weight = power_of(score, params.power);
      } else if (nan) {
        weight = std::numeric_limits<double>::quiet_NaN();
      } else if (params.method == RLK_RESAMPLING_WEIGHTS_METHOD_MAX_MIN) {
        weight = score == largest || score == smallest ? 1.0 : 0.0;
      } else {
        weight = score == largest ? params.best_weight : params.other_weight;
      }
      weight = weight + Tracked(params.eps);
    }
    put(answer.outputs[RLK_RESAMPLING_WEIGHTS_OUT_WEIGHTS], weight);
  }
  return answer;
}

}  // namespace rlk::golden
