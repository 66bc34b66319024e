// Divergences between a teacher's and a student's distribution, row by row: the declaration's formula, fp64.
#include <rlk/sdk/ops/jsd.hpp>

#include "core/golden/distributions.hpp"

namespace rlk::golden {

DataError jsd(CallOf<sdk::ops::Jsd>& call) {
  const RowSums student(call, call.logits), teacher(call, call.teacher_logits);
  const double beta = call.params.beta;
  DataError error = student.error();
  keep_first(error, teacher.error());
  for (int64_t n = 0; n < call.N; ++n) {
    const bool kept = !call.mask.present() || call.mask.load_int(n) != 0;
    Tracked loss = 0.0, student_kl = 0.0;
    if (kept && (student.is_bad(n) || teacher.is_bad(n))) {
      for (Output* output : {&call.loss, &call.lse, &call.teacher_lse, &call.student_kl}) {
        put(*output, std::numeric_limits<double>::quiet_NaN());
      }
      continue;
    }
    if (kept) {
      TrackedSum of_teacher, of_student;
      for (int64_t v = 0; v < call.V; ++v) {
        const Probabilities at(call, student.lse(n), teacher.lse(n), n, v);
        of_teacher.add(relative(at.p, at.log_p, beta == 0 ? at.log_q : at.log_m));
        of_student.add(relative(at.q, at.log_q, beta == 1 ? at.log_p : at.log_m));
      }
      student_kl = beta == 0 ? Tracked(0.0) : of_student.total();
      loss = beta == 0 ? of_teacher.total()
             : beta == 1
                 ? of_student.total()
                 : Tracked(beta, beta) * of_teacher.total() + (Tracked(1.0) - Tracked(beta, beta)) * of_student.total();
      // A NaN or an infinity of either model is in its lse.
      if (!std::isfinite(student.lse(n).value) || !std::isfinite(teacher.lse(n).value)) {
        loss = std::numeric_limits<double>::quiet_NaN();
        student_kl = beta == 0 ? 0.0 : loss.value;
      }
    }
    put(call.loss, loss);
    put(call.lse, kept ? student.lse(n) : Tracked(0.0));
    put(call.teacher_lse, kept ? teacher.lse(n) : Tracked(0.0));
    put(call.student_kl, student_kl);
  }
  return error;
}

}  // namespace rlk::golden
