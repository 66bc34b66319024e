// How the losses of tokens become one loss: the weight of an active token in it, by the parameters aggregation,
// denominator, exclude_empty_sequences and seq_denominator_floor. Plain functions of one number, in fp64.
#pragma once

#if defined(RLK_FORMULA)
#define RLK_FORMULA_OF_WEIGHTS RLK_FORMULA
#else
#define RLK_FORMULA_OF_WEIGHTS inline
#endif

namespace rlk::formula {

struct LossWeights {
  enum class Aggregation { token_mean, token_sum, seq_mean_token_mean, seq_mean_token_sum, none };
  Aggregation aggregation;
  bool leaves_empty_out;
  double denominator, floor;  // 0: the natural denominator
  // Of the batch; see add_sequence.
  double tokens, sequences;

  // Whether weights depend on how many tokens there are.
  RLK_FORMULA_OF_WEIGHTS bool needs_counts() const {
    if (aggregation == Aggregation::seq_mean_token_mean) return true;
    return denominator == 0 && aggregation != Aggregation::token_sum && aggregation != Aggregation::none;
  }
  // As how many sequences one with so many active tokens counts.
  RLK_FORMULA_OF_WEIGHTS double sequences_of(double active) const { return active > 0 || !leaves_empty_out ? 1 : 0; }
  // Counts that sequence; all of them before the first weight.
  RLK_FORMULA_OF_WEIGHTS void add_sequence(double active) {
    tokens += active;
    sequences += sequences_of(active);
  }
  RLK_FORMULA_OF_WEIGHTS double divisor() const {
    if (denominator > 0) return denominator;
    if (aggregation == Aggregation::token_mean) return tokens;
    return aggregation == Aggregation::token_sum ? 1 : sequences;
  }
  // Of a token of a sequence with so many active ones.
  RLK_FORMULA_OF_WEIGHTS double of_token(double active) const {
    if (active == 0 || aggregation == Aggregation::none) return 0;
    if (aggregation != Aggregation::seq_mean_token_mean) return 1 / divisor();
    return 1 / ((active < floor ? floor : active) * divisor());
  }
  // What a number that every active token has a part in, as a sum of losses, gives: without a weight it is not even
  // looked at.
  RLK_FORMULA_OF_WEIGHTS double weighted(double sum, double active) const {
    const double weight = of_token(active);
    return weight == 0 ? 0 : sum * weight;
  }
};
template <class Params>
RLK_FORMULA_OF_WEIGHTS LossWeights loss_weights(const Params& params) {
  LossWeights weights{};
  weights.aggregation = static_cast<LossWeights::Aggregation>(params.aggregation);
  weights.leaves_empty_out = params.exclude_empty_sequences == decltype(params.exclude_empty_sequences)::on;
  weights.denominator = params.denominator;
  weights.floor = params.seq_denominator_floor;
  return weights;
}

}  // namespace rlk::formula
