// Gradient of the student's logits from that of their divergence. Each row is read once.
#include "../skeleton/jsd_terms.cuh"

#include <rlk/formula/jsd.hpp>

RLK_SIMT_ROWS_BY(JsdBackward,
                 (narrow_out(grad_logits), streamed(logits), streamed(teacher_logits), integer_of_row(mask),
                  of_row(lse), of_row(teacher_lse), of_row(student_kl), of_row(grad_loss)),
                 (JsdTerms, terms, jsd_terms(call.params)), {
                   if (row.integer(mask, 1) == 0) {
                     row.fill(to(grad_logits), 0);
                     return;
                   }
                   const double own = row.get(lse), other = row.get(teacher_lse), divergence = row.get(student_kl);
                   if (is_empty_row(row, logits, own) || is_empty_row(row, teacher_logits, other)) {
                     row.report(simt::kDataNoFiniteLogit, 0);
                     row.fill(to(grad_logits), NAN);
                     return;
                   }
                   const double factor = terms.weight_of_slope() * row.get(grad_loss) / terms.temperature;
                   const auto write = [&](auto rare) {
                     using V = TFromD<decltype(rare)>;
                     const auto of_student = scale_of_lse<V>(own, terms.temperature);
                     const auto of_teacher = scale_of_lse<V>(other, terms.temperature);
                     const V kl = static_cast<V>(divergence), own_factor = static_cast<V>(factor);
                     row.map(rare, to(grad_logits), from(logits, teacher_logits), [&](auto, V student, V teacher) {
                       const Lane<V> d;
                       const auto token = jsd_token(d, log_probability_of(d, student, of_student),
                                                    log_probability_of(d, teacher, of_teacher), terms.beta);
                       return Mul(own_factor, jsd_slope(d, token, terms.beta, kl));
                     });
                   };
                   // A large factor times a small probability is in range.
                   if constexpr (Row::kLong) {
                     write(typename Row::Rare());
                   } else if (Abs(factor) >= 0x1p100) {
                     write(simt::RareLane());
                   } else {
                     put_jsd_slopes(row, grad_logits, row.source(logits), row.source(teacher_logits),
                                    simt::LogitBase<float>(own, terms.temperature),
                                    simt::LogitBase<float>(other, terms.temperature), terms.beta,
                                    static_cast<float>(factor), static_cast<float>(divergence));
                   }
                 })
