// Kullback-Leibler divergence of distributions, element by element and reduced, and its gradients.
#include "../skeleton/divergences.cuh"

#include <rlk/formula/kl_div.hpp>

RLK_SIMT_ROWS_THEN_ALL(
    KlDiv, (wide_out(element_loss), in(input), in(target), integer_of_row(mask), of_call(loss), kept(sum_of_row)),
    (DivergenceTerms, terms, kl_div_terms(call.params)),
    ({ all.put(loss, reduced_divergence(all, terms, mask, sum_of_row)); }), {
      const bool is_kept = row.integer(mask, 1) != 0;
      row.put(sum_of_row, divergence_row(row, is_kept, element_loss, input, target,
                                         [&](auto d, auto x, auto t) { return kl_div_term(d, terms, x, t); }));
    })
RLK_SIMT_ALL_THEN_ROWS(KlDivBackward,
                       (out(grad_input), out(grad_target), in(input), in(target), or_zero(grad_element_loss),
                        integer_of_row(mask), of_call(grad_loss), kept_once(of_all)),
                       (DivergenceTerms, terms, kl_div_terms(call.params)), ({
                         const double factor = factor_of_sum(all, terms, mask);
                         all.put(of_all, factor == 0 ? 0 : factor * all.get(grad_loss, 0));
                       }),
                       {
                         if (row.integer(mask, 1) == 0) {
                           row.fill(to(grad_input, grad_target), 0);
                           return;
                         }
                         row.hold();
                         const double of_loss = row.get(of_all);
                         row.map(d, to(grad_input, grad_target), from(input, target, grad_element_loss),
                                 [&](auto d, auto x, auto t, auto of_element) {
                                   return simt::divergence_gradients(d, kl_div_slopes(d, terms, x, t), of_loss,
                                                                     of_element);
                                 });
                       })
