// The gradient of jsd with respect to the student's logits, element by element, fp64.
#include <rlk/sdk/ops/jsd_backward.hpp>

#include "core/golden/distributions.hpp"

namespace rlk::golden {

DataError jsd_backward(CallOf<sdk::ops::JsdBackward>& call) {
  const RowSums student(call, call.logits), teacher(call, call.teacher_logits);
  const double beta = call.params.beta;
  DataError error = student.error();
  keep_first(error, teacher.error());
  for (int64_t n = 0; n < call.N; ++n) {
    const bool kept = !call.mask.present() || call.mask.load_int(n) != 0;
    for (int64_t v = 0; v < call.V; ++v) {
      if (!kept) {
        put(call.grad_logits, 0.0);
        continue;
      }
      if (student.is_bad(n) || teacher.is_bad(n)) {
        put(call.grad_logits, std::numeric_limits<double>::quiet_NaN());
        continue;
      }
      const Probabilities at(call, call.lse.load(n), call.teacher_lse.load(n), n, v);
      Tracked h = at.q - at.p;
      if (beta != 0) {
        const Tracked log_ratio = at.log_q - (beta == 1 ? at.log_p : at.log_m);
        h = at.q.value == 0 ? Tracked(0.0, at.q.error) : at.q * (log_ratio - Tracked(call.student_kl.load(n)));
        if (beta != 1) h = (Tracked(1.0) - Tracked(beta, beta)) * h;
      }
      put(call.grad_logits,
          Tracked(call.grad_loss.load(n)) * h / Tracked(call.params.temperature, call.params.temperature));
    }
  }
  return error;
}

}  // namespace rlk::golden
