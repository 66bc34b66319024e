// Kullback-Leibler divergence and total variation distance of distributions, element by element and reduced, and their
// gradients.
#include "../tokens.hpp"

#include <rlk/formula/kl_div.hpp>

namespace rlk::composed {

// Rows that a mask keeps, and what their sum is multiplied by.
template <class D>
struct KeptRows {
  Mask mask;
  bool sums;     // else the reduced loss is 0
  Value factor;  // [1, 1]

  KeptRows(D d, const View& like, const View& of_rows, const formula::DivergenceTerms& terms)
      : mask(Tokens<D>(d, of_row(of_rows.is_present() ? of_rows : like), of_row(of_rows)).mask()),
        sums(terms.reduction != formula::DivergenceTerms::Reduction::none),
        factor(Zero(d)) {
    using Reduction = formula::DivergenceTerms::Reduction;
    if (!sums) return;
    const auto rows = static_cast<double>(like.dims[0]), columns = static_cast<double>(like.dims[1]);
    if (!of_rows.is_present() || terms.denominator > 0 || terms.reduction == Reduction::sum) {
      factor = number(d, formula::reduction_factor(terms, rows, columns));
      return;
    }
    Value natural = sum_of_rows(IfThenElse(mask, number(d, 1), Zero(d)));
    if (terms.reduction == Reduction::mean) natural = Mul(natural, number(d, columns));
    factor = Div(number(d, 1), at_least(d, 1, natural));
  }
  // The sum of all elements, reduced.
  Value reduced(D d, Value terms) const { return sums ? Mul(sum_of_rows(row_sum(terms)), factor) : Zero(d); }
  Value gradient(Value grad_loss, Value of_elements) const {
    return sums ? Add(of_elements, Mul(grad_loss, factor)) : of_elements;
  }
};

}  // namespace rlk::composed

RLK_COMPOSED_ROWS_WHOLE(KlDiv, {
  const formula::DivergenceTerms terms = formula::kl_div_terms(call.params);
  const KeptRows<decltype(d)> kept(d, call.input, call.mask, terms);
  const V element = IfThenElseZero(kept.mask, kl_div_term(d, terms, in(call.input), in(call.target)));
  out(call.element_loss, element);
  out(of_columns(call.loss), kept.reduced(d, element));
})
RLK_COMPOSED_ROWS_WHOLE(KlDivBackward, {
  const formula::DivergenceTerms terms = formula::kl_div_terms(call.params);
  const KeptRows<decltype(d)> kept(d, call.input, call.mask, terms);
  const Two<V> slopes = kl_div_slopes(d, terms, in(call.input), in(call.target));
  const V of_element = kept.gradient(in(call.grad_loss), in(or_number(call.grad_element_loss, 0)));
  out(call.grad_input, IfThenElseZero(kept.mask, Mul(slopes.first, of_element)));
  out(call.grad_target, IfThenElseZero(kept.mask, Mul(slopes.second, of_element)));
})
RLK_COMPOSED_ROWS_WHOLE(Tvd, {
  const formula::DivergenceTerms terms = formula::distance_terms(call.params);
  const KeptRows<decltype(d)> kept(d, call.input, call.mask, terms);
  const V element = IfThenElseZero(kept.mask, distance_term(d, in(call.input), in(call.target)));
  out(call.element_loss, element);
  out(of_columns(call.loss), kept.reduced(d, element));
})
RLK_COMPOSED_ROWS_WHOLE(TvdBackward, {
  const formula::DivergenceTerms terms = formula::distance_terms(call.params);
  const KeptRows<decltype(d)> kept(d, call.input, call.mask, terms);
  const Two<V> slopes = distance_slopes(d, in(call.input), in(call.target));
  const V of_element = kept.gradient(in(call.grad_loss), in(or_number(call.grad_element_loss, 0)));
  out(call.grad_input, IfThenElseZero(kept.mask, Mul(slopes.first, of_element)));
  out(call.grad_target, IfThenElseZero(kept.mask, Mul(slopes.second, of_element)));
})
