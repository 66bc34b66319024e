// What the parameters of kl_div and tvd say, and how the terms of elements become one loss: plain functions of numbers.
#pragma once

#if defined(RLK_FORMULA)
#define RLK_FORMULA_OF_A_REDUCTION RLK_FORMULA
#else
#define RLK_FORMULA_OF_A_REDUCTION inline
#endif

namespace rlk::formula {

// What the parameters of a call say.
struct DivergenceTerms {
  enum class Reduction { batchmean, mean, sum, none };
  double denominator, eps;
  Reduction reduction;
  bool is_log;

  static bool asks_f64() { return false; }
};
template <class Params>
inline DivergenceTerms distance_terms(const Params& params) {
  DivergenceTerms terms{};
  terms.denominator = params.denominator;
  terms.reduction = static_cast<DivergenceTerms::Reduction>(params.reduction);
  return terms;
}
template <class Params>
inline DivergenceTerms kl_div_terms(const Params& params) {
  DivergenceTerms terms = distance_terms(params);
  terms.eps = params.eps;
  terms.is_log = params.log_target == decltype(params.log_target)::on;
  return terms;
}

// What the sum is multiplied by; 0: nothing is summed.
RLK_FORMULA_OF_A_REDUCTION double reduction_factor(const DivergenceTerms& terms, double rows, double columns) {
  using Reduction = DivergenceTerms::Reduction;
  if (terms.reduction == Reduction::none) return 0;
  if (terms.denominator > 0) return 1 / terms.denominator;
  if (terms.reduction == Reduction::sum) return 1;
  const double natural = terms.reduction == Reduction::mean ? rows * columns : rows;
  return 1 / (natural > 1 ? natural : 1);
}

}  // namespace rlk::formula
