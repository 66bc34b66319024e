// Divergences between a teacher's and a student's logits, each read twice: for its log-sum-exp, and for the terms.
#include "../skeleton/jsd_terms.cuh"

#include <rlk/formula/jsd.hpp>

#if defined(RLK_SIMT_ROWS_ON_DEVICE)
namespace rlk::formula {

struct JsdRow {
  double of_teacher, of_student;
};
template <class Row, int x, int y>
__device__ __forceinline__ JsdRow jsd_row(Row& row, simt::RowName<x> logits, simt::RowName<y> teacher_logits,
                                          const JsdTerms& terms, const simt::LogitRow& student,
                                          const simt::LogitRow& teacher) {
  if constexpr (!Row::kLong) {
    const simt::Log2Scale of_student = log2_scale_of_powers(student, terms.temperature);
    const simt::Log2Scale of_teacher = log2_scale_of_powers(teacher, terms.temperature);
    if (terms.beta > 0 && terms.beta < 1) {
      const Two<double> sums =
          mixture_sums(row, row.source(logits), row.source(teacher_logits), of_student, of_teacher, terms.beta);
      return {sums.first < 0 ? 0 : sums.first, sums.second < 0 ? 0 : sums.second};
    }
    const bool is_forward = terms.beta == 0;
    const double sum = relative_sum(row, is_forward ? row.source(teacher_logits) : row.source(logits),
                                    is_forward ? row.source(logits) : row.source(teacher_logits),
                                    is_forward ? of_teacher : of_student, is_forward ? of_student : of_teacher);
    const double of_first = sum < 0 ? 0 : sum;
    return is_forward ? JsdRow{of_first, 0} : JsdRow{0, of_first};
  } else {
    using V = typename Row::A;
    const auto of_student = scale_of_powers<V>(student.largest, student.log_sum, terms.temperature);
    const auto of_teacher = scale_of_powers<V>(teacher.largest, teacher.log_sum, terms.temperature);
    simt::RowSum<Row::kLong> p_sum, q_sum;
    row.template each<typename Row::Rare>(from(logits, teacher_logits), [&](auto, int64_t, int count, auto& v) {
      const Lane<V> d;
      V of_p[Row::kSize], of_q[Row::kSize];
#pragma unroll
      for (int e = 0; e < Row::kSize; ++e) {
        const auto token = jsd_token(d, log_probability_of(d, v[x][e], of_student),
                                     log_probability_of(d, v[y][e], of_teacher), terms.beta);
        of_p[e] = e < count && terms.beta < 1 ? divergence_of(token.p, token.log_p, token.m, token.log_m) : V(0);
        of_q[e] = e < count && terms.beta > 0 ? divergence_of(token.q, token.log_q, token.m, token.log_m) : V(0);
      }
      row.add_terms(p_sum, of_p);
      row.add_terms(q_sum, of_q);
    });
    return {row.reduce(p_sum).value(), row.reduce(q_sum).value()};
  }
}

}  // namespace rlk::formula
#endif

RLK_SIMT_ROWS_BY(Jsd,
                 (streamed(logits), streamed(teacher_logits), integer_of_row(mask), of_row(loss), of_row(lse),
                  of_row(teacher_lse), of_row(student_kl)),
                 (JsdTerms, terms, jsd_terms(call.params)), {
                   double divergence = 0, of_student = 0;
                   simt::LogitRows rows{};
                   if (row.integer(mask, 1) != 0) {
                     rows = logit_rows(row, logits, teacher_logits, 0, terms.temperature);
                     const double both = rows.first.lse + rows.second.lse;
                     if (rows.first.is_empty || rows.second.is_empty) {
                       divergence = of_student = rows.first.lse = rows.second.lse = NAN;
                     } else if (both != both) {
                       divergence = NAN;
                       of_student = terms.beta == 0 ? 0 : NAN;
                     } else {
                       const JsdRow sums = jsd_row(row, logits, teacher_logits, terms, rows.first, rows.second);
                       of_student = sums.of_student;
                       divergence = terms.beta == 0   ? sums.of_teacher
                                    : terms.beta == 1 ? sums.of_student
                                                      : terms.beta * sums.of_teacher + (1 - terms.beta) * of_student;
                     }
                   }
                   row.put(loss, divergence);
                   row.put(lse, rows.first.lse);
                   row.put(teacher_lse, rows.second.lse);
                   row.put(student_kl, of_student);
                 })
