// How the losses of tokens become one loss: the weight of an active token in it, by the parameters aggregation,
// denominator, exclude_empty_sequences and seq_denominator_floor.
#pragma once

#include <algorithm>

namespace rlk::cpu {

template <class Params>
class LossWeights {
public:
  explicit LossWeights(const Params& params) : params_(params) {}

  // Counts a sequence with so many active tokens; all of them before the first weight.
  void add_sequence(double active) {
    tokens_ += active;
    sequences_ += active > 0 || params_.exclude_empty_sequences == Exclude::off ? 1 : 0;
  }
  double tokens() const { return tokens_; }

  // Whether weights depend on how many tokens there are.
  bool needs_counts() const {
    if (params_.aggregation == Aggregation::seq_mean_token_mean) return true;
    return params_.denominator == 0 && params_.aggregation != Aggregation::token_sum &&
           params_.aggregation != Aggregation::none;
  }

  // Of a token of a sequence with so many active ones.
  double of_token(double active) const {
    if (active == 0 || params_.aggregation == Aggregation::none) return 0;
    const bool of_means = params_.aggregation == Aggregation::seq_mean_token_mean;
    return 1 / (of_means ? std::max(active, params_.seq_denominator_floor) * divisor() : divisor());
  }
  // What a number that every active token has a part in, as a sum of losses, gives: without a weight it is not even
  // looked at.
  double weighted(double sum, double active) const {
    const double weight = of_token(active);
    return weight == 0 ? 0 : sum * weight;
  }

private:
  using Aggregation = decltype(Params::aggregation);
  using Exclude = decltype(Params::exclude_empty_sequences);

  double divisor() const {
    if (params_.denominator > 0) return params_.denominator;
    if (params_.aggregation == Aggregation::token_mean) return tokens_;
    return params_.aggregation == Aggregation::token_sum ? 1 : sequences_;
  }

  const Params& params_;
  double tokens_ = 0, sequences_ = 0;
};

}  // namespace rlk::cpu
