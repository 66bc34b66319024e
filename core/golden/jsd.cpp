// Divergences between a teacher's and a student's distribution, row by row: the declaration's formula, fp64.
#include <rlk/sdk/ops/jsd.hpp>

#include "core/golden/distributions.hpp"

namespace rlk::golden {

DataError jsd(CallOf<sdk::ops::Jsd>& call) {
  const RowSums student(call, call.logits), teacher(call, call.teacher_logits);
  DataError error = student.error();
  keep_first(error, teacher.error());
  for (int64_t n = 0; n < call.N; ++n) {
    const bool kept = is_kept(call.mask, n);
    if (kept && (student.is_bad(n) || teacher.is_bad(n))) {
      for (Output* output : {&call.loss, &call.lse, &call.teacher_lse, &call.student_kl}) {
        put(*output, std::numeric_limits<double>::quiet_NaN());
      }
      continue;
    }
    Divergence row;
    if (kept) {
      const Tracked lse = student.lse(n), teacher_lse = teacher.lse(n);
      row = divergence(call.params.beta, call.V, lse, teacher_lse,
                       [&](int64_t v) { return probabilities(call, lse, teacher_lse, n, v); });
    }
    put(call.loss, row.loss);
    put(call.lse, kept ? student.lse(n) : Tracked(0.0));
    put(call.teacher_lse, kept ? teacher.lse(n) : Tracked(0.0));
    put(call.student_kl, row.student_kl);
  }
  return error;
}

}  // namespace rlk::golden
