// How the losses of tokens become one loss, by the parameters aggregation, denominator, exclude_empty_sequences and
// seq_denominator_floor.
#pragma once

#include <algorithm>
#include <vector>

#include "core/golden/dual.hpp"

namespace rlk::golden {

// The weight of an active token in the loss, for sequences with so many active tokens.
template <class Params>
std::vector<Tracked> loss_weights(const Params& params, const std::vector<int64_t>& active) {
  using Aggregation = decltype(params.aggregation);
  const bool counts_empty = params.exclude_empty_sequences == decltype(params.exclude_empty_sequences)::off;
  double tokens = 0, sequences = 0;
  for (const int64_t n : active) {
    tokens += static_cast<double>(n);
    sequences += counts_empty || n > 0 ? 1 : 0;
  }
  const auto divisor = [&](double natural) {
    return params.denominator > 0 ? parameter(params.denominator) : Tracked{natural, 0};
  };
  std::vector<Tracked> weights;
  for (const int64_t n : active) {
    const Tracked one{1, 0};
    Tracked weight;  // of no aggregation, and where there is no token
    if (n > 0 && params.aggregation == Aggregation::token_mean) weight = one / divisor(tokens);
    if (n > 0 && params.aggregation == Aggregation::token_sum) weight = one / divisor(1);
    if (n > 0 && params.aggregation == Aggregation::seq_mean_token_sum) weight = one / divisor(sequences);
    if (n > 0 && params.aggregation == Aggregation::seq_mean_token_mean) {
      const double length = std::max(static_cast<double>(n), params.seq_denominator_floor);
      weight = one / Tracked{length, 0} / divisor(sequences);
    }
    weights.push_back(weight);
  }
  return weights;
}

}  // namespace rlk::golden
