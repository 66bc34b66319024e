// Total variation distance of distributions, element by element and reduced, and its gradients.
#include "../skeleton/divergences.cuh"

#include <rlk/formula/kl_div.hpp>

RLK_SIMT_ROWS_THEN_ALL(Tvd,
                       (wide_out(element_loss), streamed(input), streamed(target), integer_of_row(mask), of_call(loss),
                        kept(sum_of_row)),
                       (DivergenceTerms, terms, distance_terms(call.params)),
                       ({ all.put(loss, reduced_divergence(all, terms, mask, sum_of_row)); }), {
                         double sum = 0;
                         if (row.integer(mask, 1) == 0) {
                           row.fill(to(element_loss), 0);
                         } else {
                           sum = divergence_row(row, element_loss, input, target,
                                                [](auto d, auto x, auto t) { return distance_term(d, x, t); });
                         }
                         row.put(sum_of_row, sum);
                       })
RLK_SIMT_ALL_THEN_ROWS(TvdBackward,
                       (out(grad_input), out(grad_target), streamed(input), streamed(target),
                        or_zero(grad_element_loss), integer_of_row(mask), of_call(grad_loss), kept_once(of_all)),
                       (DivergenceTerms, terms, distance_terms(call.params)), ({
                         const double factor = factor_of_sum(all, terms, mask);
                         all.put(of_all, factor == 0 ? 0 : factor * all.get(grad_loss, 0));
                       }),
                       {
                         if (row.integer(mask, 1) == 0) {
                           row.fill(to(grad_input, grad_target), 0);
                           return;
                         }
                         put_divergence_slopes(row, grad_input, grad_target, input, target, grad_element_loss,
                                               row.get(of_all),
                                               [](auto d, auto x, auto t) { return distance_slopes(d, x, t); });
                       })
