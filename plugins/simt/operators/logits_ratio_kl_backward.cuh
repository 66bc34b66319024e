// Gradient of the policy's logits from those of ratio and KL. A row is read and written once.
#include "../skeleton/logits.cuh"

#include <rlk/formula/logits_ratio_kl.hpp>

RLK_SIMT_ROWS_BY(LogitsRatioKlBackward,
                 (out(grad_logits), streamed(logits), integer_of_row(ids), integer_of_row(mask), of_row(lse),
                  of_row(grad_ratio), of_row(grad_kl), of_row(old_logp), of_row(ref_logp)),
                 (LogitsRatioKlTerms, terms,
                  logits_ratio_kl_gradient_terms(call.params, call.old_logp != nullptr, call.grad_kl != nullptr)),
                 {
                   const int64_t target = row.integer(ids, 0);
                   if (target == terms.ignore_index || row.integer(mask, 1) == 0) {
                     row.fill(to(grad_logits), 0);
                     return;
                   }
                   if (target < 0 || target >= row.columns()) {
                     row.report(simt::kDataIdOutOfRange, target);
                     row.fill(to(grad_logits), NAN);
                     return;
                   }
                   const double log_sum = row.get(lse), logit = row.get(logits, target);
                   if (is_empty_row(row, logits, log_sum)) {
                     row.report(simt::kDataNoFiniteLogit, 0);
                     row.fill(to(grad_logits), NAN);
                     return;
                   }
                   const double own = simt::logp_by_lse(logit, terms.temperature, log_sum);
                   const double slope =
                       ratio_kl_gradient(Lane<double>(), terms.of_tokens, own, row.get(old_logp), row.get(ref_logp),
                                         1.0, row.get(grad_ratio), row.get(grad_kl));
                   put_logit_gradient(row, grad_logits, logits, target, logit, log_sum, slope, terms.temperature);
                 })
