// Masked normalisation over the whole batch: the declaration's formula, fp64.
#include <rlk/ops/whiten.h>

#include <vector>

#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

// The mean as a number of the set plus the mean difference to it: exact where all are equal.
Tracked mean_of(const std::vector<double>& numbers) {
  Sum difference;
  double magnitude = 0;
  bool all_equal = true;
  for (const double x : numbers) {
    difference.add(x - numbers[0]);
    magnitude += std::fabs(x);
    all_equal &= x == numbers[0];
  }
  const auto n = static_cast<double>(numbers.size());
  const double mean = numbers[0] + difference.value() / n;
  return {mean, all_equal ? 0.0 : magnitude / n + std::fabs(mean)};
}

Tracked divisor_of(const rlk_whiten_params& params, const std::vector<double>& numbers, Tracked mean) {
  TrackedSum squares;
  for (const double x : numbers) squares.add((Tracked(x) - mean) * (Tracked(x) - mean));
  const bool unbiased = params.std == RLK_WHITEN_STD_UNBIASED;
  const double n = static_cast<double>(numbers.size()) - (unbiased ? 1 : 0);
  const Tracked variance = n > 0 ? squares.total() / Tracked(n) : Tracked(0.0);
  const Tracked eps = params.eps;
  if (params.eps_mode == RLK_WHITEN_EPS_MODE_DEVIATION) return sqrt(variance) + eps;
  if (params.eps_mode == RLK_WHITEN_EPS_MODE_VARIANCE) return sqrt(variance + eps);
  return sqrt(variance.value < params.eps ? eps : variance);
}

}  // namespace

Answer answer_whiten(const Call& call) {
  const auto& params = call.params_as<rlk_whiten_params>();
  const View &x = call[RLK_WHITEN_IN_X], &mask = call[RLK_WHITEN_IN_MASK];
  const auto kept = [&mask](int64_t b, int64_t t) { return !mask.present() || mask.load_int(b, t) != 0; };
  std::vector<double> numbers;
  for (int64_t b = 0; b < x.shape[0]; ++b) {
    for (int64_t t = 0; t < x.shape[1]; ++t) {
      if (kept(b, t)) numbers.push_back(x.load(b, t));
    }
  }
  const Tracked mean = numbers.empty() ? Tracked(0.0) : mean_of(numbers);
  const Tracked divisor = numbers.empty() ? Tracked(1.0) : divisor_of(params, numbers, mean);
  Answer answer;
  answer.outputs.resize(RLK_WHITEN_N_OUTPUTS);
  for (int64_t b = 0; b < x.shape[0]; ++b) {
    for (int64_t t = 0; t < x.shape[1]; ++t) {
      Tracked y = 0.0;
      if (kept(b, t)) {
        y = (Tracked(x.load(b, t)) - mean) / divisor;
        if (params.shift_mean == RLK_WHITEN_SHIFT_MEAN_OFF) y = y + mean;
      }
      put(answer.outputs[RLK_WHITEN_OUT_Y], y);
    }
  }
  return answer;
}

}  // namespace rlk::golden
