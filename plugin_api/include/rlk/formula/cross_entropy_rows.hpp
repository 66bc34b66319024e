// What the parameters of cross_entropy say, what is made of a row's log-sum-exp, and how rows become one loss: plain
// functions of numbers, in fp64.
#pragma once

#if defined(RLK_FORMULA)
#define RLK_FORMULA_OF_ENTROPY RLK_FORMULA
#else
#define RLK_FORMULA_OF_ENTROPY inline
#endif

namespace rlk::formula {

// What the parameters of a call say.
struct CrossEntropyTerms {
  enum class Reduction { mean, sum, none };
  double smoothing, square_scale, softcap, denominator;
  long long ignore_index;
  Reduction reduction;
  bool is_weighted;

  bool asks_f64() const { return softcap > 0 && (softcap < 0x1p-60 || softcap > 0x1p60); }
};
template <class Params>
RLK_FORMULA_OF_ENTROPY CrossEntropyTerms cross_entropy_terms(const Params& params, bool is_weighted) {
  using Reduction = decltype(params.reduction);
  CrossEntropyTerms terms{};
  terms.smoothing = params.label_smoothing;
  terms.square_scale = params.lse_square_scale;
  terms.softcap = params.softcap;
  terms.denominator = params.denominator;
  terms.ignore_index = params.ignore_index;
  terms.reduction = params.reduction == Reduction::mean  ? CrossEntropyTerms::Reduction::mean
                    : params.reduction == Reduction::sum ? CrossEntropyTerms::Reduction::sum
                                                         : CrossEntropyTerms::Reduction::none;
  terms.is_weighted = is_weighted;
  return terms;
}

// 1 / D and 1 / Z of the declaration; 0 where nothing is divided. weight and rows: of the active rows.
struct CrossEntropyShares {
  double entropy, square;
};
RLK_FORMULA_OF_ENTROPY bool counts_rows(const CrossEntropyTerms& terms) {
  return terms.reduction == CrossEntropyTerms::Reduction::mean && !(terms.denominator > 0);
}
RLK_FORMULA_OF_ENTROPY CrossEntropyShares cross_entropy_shares(const CrossEntropyTerms& terms, double weight,
                                                               double rows) {
  if (terms.reduction == CrossEntropyTerms::Reduction::none) return {0, 0};
  if (terms.denominator > 0) return {1 / terms.denominator, 1 / terms.denominator};
  if (terms.reduction == CrossEntropyTerms::Reduction::sum) return {1, 1};
  const double own = terms.is_weighted ? weight : rows;
  return {own == 0 ? 0 : 1 / own, rows == 0 ? 0 : 1 / rows};
}
// Without a weight a mean is 0, but not where a row is no number.
RLK_FORMULA_OF_ENTROPY double reduced(const CrossEntropyTerms& terms, double sum, double share) {
  const bool is_none = terms.reduction == CrossEntropyTerms::Reduction::none;
  return is_none || (share == 0 && sum == sum) ? 0 : sum * share;
}

// A row's own numbers; weights: the sum of the classes', score_sum: of weighted_score.
RLK_FORMULA_OF_ENTROPY double cross_entropy_of(const CrossEntropyTerms& terms, double logp, double log_sum,
                                               double weight, double weights, double score_sum, double classes) {
  const double own = (1 - terms.smoothing) * weight;
  double loss = own == 0 && logp - logp != 0 && logp == logp ? 0 : own * -logp;
  if (terms.smoothing > 0) loss += terms.smoothing / classes * (weights * log_sum - score_sum);
  return loss;
}

}  // namespace rlk::formula
