// The ends of the scores first, then every weight.
#include "core/cpu/advantages/resampling_weights.hpp"

#include <cmath>

namespace rlk::cpu {
namespace {

using Method = ResamplingWeightsArgs::Method;

// Both NaN where one score is.
struct Range {
  double smallest = std::numeric_limits<double>::infinity();
  double largest = -std::numeric_limits<double>::infinity();
};
Range range_of(const ResamplingWeightsArgs& args) {
  Range range;
  for (int64_t row = 0; row < args.rows; ++row) {
    if (!args.mask.keeps(row)) continue;
    const double score = args.scores.get(row);
    if (std::isnan(score)) return {score, score};
    if (score < range.smallest) range.smallest = score;
    if (score > range.largest) range.largest = score;
  }
  return range;
}

double weight_of(const ResamplingWeightsArgs& args, const Range& range, double score) {
  if (args.method == Method::pow) return std::pow(std::fabs(score), args.power);
  if (std::isnan(range.largest)) return range.largest;
  if (args.method == Method::max_min) return score == range.largest || score == range.smallest ? 1 : 0;
  return score == range.largest ? args.best_weight : args.other_weight;
}

}  // namespace

void resampling_weights(const ResamplingWeightsArgs& args, const ParallelFor& hook) {
  const Range range = args.method == Method::pow ? Range{} : range_of(args);
  parallel_for(hook, args.rows, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      args.weights.put(row, args.mask.keeps(row) ? weight_of(args, range, args.scores.get(row)) + args.eps : 0);
    }
  });
}

}  // namespace rlk::cpu
