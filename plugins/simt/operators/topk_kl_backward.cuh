// Gradient of the student's logits from that of their KL. A row is read once; its gradient is written once, and that of
// the teacher's tokens once more.
#include "../skeleton/logits.cuh"

#include <rlk/formula/topk_kl.hpp>

RLK_SIMT_ROWS_BY(TopkKlBackward,
                 (out(grad_logits), streamed(logits), integers_of_row(ids), list_of_row(teacher_logp),
                  integer_of_row(mask), of_row(lse), of_row(grad_loss)),
                 (TopkKlTerms, terms, topk_kl_gradient_terms(call.params, call.ids->shape[1])), {
                   if (row.integer(mask, 1) == 0) {
                     row.fill(to(grad_logits), 0);
                     return;
                   }
                   if (!are_columns(row, ids, terms.tokens)) {
                     row.fill(to(grad_logits), NAN);
                     return;
                   }
                   const double own_lse = row.get(lse), grad = row.get(grad_loss);
                   if (is_empty_row(row, logits, own_lse)) {
                     row.report(simt::kDataNoFiniteLogit, 0);
                     row.fill(to(grad_logits), NAN);
                     return;
                   }
                   const auto student = [&](int64_t k) {
                     return simt::log_probability(row.get(logits, row.integer(ids, 0, k)), terms.temperature, own_lse);
                   };
                   const auto weight = [&](int64_t k) {
                     return topk_kl_weight(terms, student(k), row.get(teacher_logp, k));
                   };
                   const double total = row.sum_of_list(terms.tokens, weight);
                   const double gain = grad * total / terms.temperature;
                   put_probabilities(row, grad_logits, logits, -1, 0, gain, {own_lse, terms.temperature});
                   row.wait();
                   // The teacher's tokens once more: what a rounded gradient would lose is theirs. The first of one id
                   // has it.
                   for (int64_t k = row.place(); k < terms.tokens; k += row.group()) {
                     const int64_t id = row.integer(ids, 0, k);
                     bool is_first = true;
                     for (int64_t j = 0; j < k && is_first; ++j) is_first = row.integer(ids, 0, j) != id;
                     if (!is_first) continue;
                     simt::RowSum<true> own;
                     for (int64_t j = k; j < terms.tokens; ++j) {
                       if (row.integer(ids, 0, j) == id) own.add(weight(j));
                     }
                     const double p = exp(Lane<double>(), student(k));
                     row.set(grad_logits, id, grad * (p * total - own.value()) / terms.temperature);
                   }
                 })
