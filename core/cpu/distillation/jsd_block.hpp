// One block of one row of two models' logits: the unit that is compiled for every instruction set, and what becomes of
// a row's sums. Internal to jsd and linear_jsd.
#pragma once

#include "core/cpu/logp/logp_block.hpp"

namespace rlk::cpu {

// Of one row: how raw logits become log-probabilities, (x - max) / temperature - log_sum, in fp64.
struct RowScale {
  double max, log_sum, temperature;
};

// The sums over columns [begin, end) of p log(p / to) and q log(q / to), where `to` is the other distribution for beta
// 0 and 1, else their mixture. Only the one that beta asks for is there at 0 and 1.
struct JsdSums {
  double teacher = 0, student = 0;

  // Of a whole row.
  double loss(double beta) const {
    return beta == 0 ? teacher : beta == 1 ? student : beta * teacher + (1 - beta) * student;
  }
};
template <class Call>
void put_divergence(const Call& call, int64_t n, double loss, double lse, double teacher_lse, double student_kl) {
  call.loss.put(n, loss);
  if (call.lse.present()) call.lse.put(n, lse);
  if (call.teacher_lse.present()) call.teacher_lse.put(n, teacher_lse);
  if (call.student_kl.present()) call.student_kl.put(n, student_kl);
}
JsdSums jsd_block(const Scores& student, const void* row, const RowScale& of_student, const Scores& teacher,
                  const void* teacher_row, const RowScale& of_teacher, double beta, int64_t begin, int64_t end);

// Writes the gradients of columns [begin, end) of the student's logits; grad_row may be row itself.
void jsd_gradient_block(const Scores& student, const void* row, const RowScale& of_student, const Scores& teacher,
                        const void* teacher_row, const RowScale& of_teacher, double beta, double student_kl,
                        double grad_loss, int64_t begin, int64_t end, void* grad_row, int64_t grad_stride);

}  // namespace rlk::cpu
