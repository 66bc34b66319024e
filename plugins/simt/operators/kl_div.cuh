// Kullback-Leibler divergence of distributions, element by element and reduced, and its gradients.
#include "../skeleton/divergences.cuh"

#include <rlk/formula/kl_div.hpp>

#if defined(RLK_SIMT_ROWS_ON_DEVICE)
namespace rlk::formula {

// Calls f(terms) where the compiler knows what targets are: a loop for each computes no more than it must.
template <class F>
__device__ __forceinline__ void with_target(DivergenceTerms terms, const F& f) {
  if (terms.is_log) {
    terms.is_log = true;
    f(terms);
  } else {
    terms.is_log = false;
    f(terms);
  }
}

}  // namespace rlk::formula
#endif

RLK_SIMT_ROWS_THEN_ALL(KlDiv,
                       (wide_out(element_loss), streamed(input), streamed(target), integer_of_row(mask), of_call(loss),
                        kept(sum_of_row)),
                       (DivergenceTerms, terms, kl_div_terms(call.params)),
                       ({ all.put(loss, reduced_divergence(all, terms, mask, sum_of_row)); }), {
                         double sum = 0;
                         if (row.integer(mask, 1) == 0) {
                           row.fill(to(element_loss), 0);
                         } else {
                           with_target(terms, [&](const DivergenceTerms& of) {
                             sum = divergence_row(row, element_loss, input, target,
                                                  [&](auto d, auto x, auto t) { return kl_div_term(d, of, x, t); });
                           });
                         }
                         row.put(sum_of_row, sum);
                       })
RLK_SIMT_ALL_THEN_ROWS(KlDivBackward,
                       (out(grad_input), out(grad_target), streamed(input), streamed(target),
                        or_zero(grad_element_loss), integer_of_row(mask), of_call(grad_loss), kept_once(of_all)),
                       (DivergenceTerms, terms, kl_div_terms(call.params)), ({
                         const double factor = factor_of_sum(all, terms, mask);
                         all.put(of_all, factor == 0 ? 0 : factor * all.get(grad_loss, 0));
                       }),
                       {
                         if (row.integer(mask, 1) == 0) {
                           row.fill(to(grad_input, grad_target), 0);
                           return;
                         }
                         const double of_loss = row.get(of_all);
                         with_target(terms, [&](const DivergenceTerms& of) {
                           put_divergence_slopes(row, grad_input, grad_target, input, target, grad_element_loss,
                                                 of_loss,
                                                 [&](auto d, auto x, auto t) { return kl_div_slopes(d, of, x, t); });
                         });
                       })
