// The gradient of jsd with respect to the student's logits, element by element, fp64.
#include <rlk/sdk/ops/jsd_backward.hpp>

#include "core/golden/distributions.hpp"

namespace rlk::golden {

DataError jsd_backward(CallOf<sdk::ops::JsdBackward>& call) {
  const RowSums student(call, call.logits), teacher(call, call.teacher_logits);
  DataError error = student.error();
  keep_first(error, teacher.error());
  for (int64_t n = 0; n < call.N; ++n) {
    const bool kept = is_kept(call.mask, n);
    for (int64_t v = 0; v < call.V; ++v) {
      if (!kept) {
        put(call.grad_logits, 0.0);
        continue;
      }
      if (student.is_bad(n) || teacher.is_bad(n)) {
        put(call.grad_logits, std::numeric_limits<double>::quiet_NaN());
        continue;
      }
      const Probabilities at = probabilities(call, call.lse.load(n), call.teacher_lse.load(n), n, v);
      put(call.grad_logits, logit_gradient(call, at, n));
    }
  }
  return error;
}

}  // namespace rlk::golden
