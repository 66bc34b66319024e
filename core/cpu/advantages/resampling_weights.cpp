// How often each sample of a batch is to be drawn again, in fp64: the ends of the scores first, then every weight.
#include <rlk/sdk/ops/resampling_weights.hpp>

#include <cmath>

#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
using namespace sdk::ops::resampling_weights;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using Call = CallOf<sdk::ops::ResamplingWeights>;

// Both NaN where one score is.
struct Range {
  double smallest = std::numeric_limits<double>::infinity();
  double largest = -std::numeric_limits<double>::infinity();
};
Range range_of(const Call& call) {
  Range range;
  for (int64_t row = 0; row < call.B; ++row) {
    if (!call.mask.keeps(row)) continue;
    const double score = call.scores.get(row);
    if (std::isnan(score)) return {score, score};
    if (score < range.smallest) range.smallest = score;
    if (score > range.largest) range.largest = score;
  }
  return range;
}

double weight_of(const Params& params, const Range& range, double score) {
  if (params.method == Method::pow) return std::pow(std::fabs(score), params.power);
  if (std::isnan(range.largest)) return range.largest;
  if (params.method == Method::max_min) return score == range.largest || score == range.smallest ? 1 : 0;
  return score == range.largest ? params.best_weight : params.other_weight;
}

DataError resampling_weights(const Call& call, const Context& context) {
  const Range range = call.params.method == Method::pow ? Range{} : range_of(call);
  parallel_for(context.parallel, call.B, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const bool kept = call.mask.keeps(row);
      call.weights.put(row, kept ? weight_of(call.params, range, call.scores.get(row)) + call.params.eps : 0);
    }
  });
  return {};
}

double resampling_weights_operations(const Call& call) {
  return static_cast<double>(call.B) * 2000;
}

}  // namespace

RLK_CPU_KERNEL(ResamplingWeights, .run = resampling_weights, .operations = resampling_weights_operations);

}  // namespace rlk::cpu
