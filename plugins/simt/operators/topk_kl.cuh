// Forward KL of a teacher's most probable tokens. A row of logits is read once.
#include "../skeleton/logits.cuh"

#include <rlk/formula/topk_kl.hpp>

RLK_SIMT_ROWS_BY(TopkKl,
                 (streamed(logits), integers_of_row(ids), list_of_row(teacher_logp), integer_of_row(mask), of_row(loss),
                  of_row(lse), of_row(student_mass), of_row(teacher_mass)),
                 (TopkKlTerms, terms, topk_kl_terms(call.params, call.ids->shape[1])), {
                   const Lane<double> wide;
                   double divergence = 0, own_lse = 0, of_student = 0, of_teacher = 0;
                   if (row.integer(mask, 1) != 0) {
                     divergence = own_lse = of_student = of_teacher = NAN;
                     if (are_columns(row, ids, terms.tokens)) {
                       const simt::LogitRow own = logit_row(row, row.source(logits), 0, terms.temperature);
                       if (!own.is_empty) {
                         const auto sums = row.template sums_of_list<3>(terms.tokens, [&](int64_t k, double(&term)[3]) {
                           const double student =
                               own.logp_of(row.get(logits, row.integer(ids, 0, k)), terms.temperature);
                           const double teacher = row.get(teacher_logp, k);
                           term[0] = topk_kl_term(terms, student, teacher);
                           term[1] = exp(wide, student);
                           term[2] = exp(wide, teacher);
                         });
                         own_lse = own.lse;
                         divergence = sums.of[0].value();
                         of_student = sums.of[1].value();
                         of_teacher = sums.of[2].value();
                       }
                     }
                   }
                   row.put(loss, divergence);
                   row.put(lse, own_lse);
                   row.put(student_mass, of_student);
                   row.put(teacher_mass, of_teacher);
                 })
