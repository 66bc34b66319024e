// The gradient of the GRPO loss: the derivative of each token's loss by its logp, through logp's reference backward.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/grpo_loss_backward.hpp>

#include <cmath>
#include <limits>

#include "core/golden/grpo.hpp"

namespace rlk::golden {

DataError grpo_loss_backward(CallOf<sdk::ops::GrpoLossBackward>& call) {
  auto forward = sdk::forward_of<GrpoCall>(call);
  forward.epsilon = call.epsilon;
  const auto rows = static_cast<size_t>(call.B * call.T);
  if (const DataError error = group_error(forward); error.kind != kNoDataError) {
    fill(call.grad_logits, call.B * call.T * call.V, std::numeric_limits<double>::quiet_NaN());
    return error;
  }

  const std::vector<Tracked> advantages = group_advantages(forward);
  double active = 0;
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t t = 0; t < call.T; ++t) active += is_active(forward, b, t) ? 1 : 0;
  }
  const Tracked grad_loss{call.grad_loss.load(0), 0};
  std::vector<double> lse(rows, 0.0), gradient(rows, 0.0), gradient_error(rows, 0.0);
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t t = 0; t < call.T; ++t) {
      if (!is_active(forward, b, t)) continue;
      const auto row = static_cast<size_t>(b * call.T + t);
      lse[row] = call.lse.load(b, t);
      const int64_t id = call.ids.load_int(b, t);
      if (id < 0 || id >= call.V) continue;  // logp_backward tells
      const Tracked logit{call.logits.load(b, t, id), 0};
      const Tracked z = call.params.temperature == 1 ? logit : logit / parameter(call.params.temperature);
      if (is_vague(z.error, call.epsilon)) {
        gradient_error[row] = std::numeric_limits<double>::infinity();
        continue;
      }
      const Dual logp(z - Tracked{lse[row]}, {1, 0});
      Dual loss = clipped_surrogate(forward, logp, call.old_logp.load(b, t), advantages[static_cast<size_t>(b)],
                                    call.params.clamp_gradient);
      if (call.params.beta != 0) {
        loss = loss + Dual(parameter(call.params.beta)) * k3(Dual(call.ref_logp.load(b, t)) - logp);
      }
      const Tracked g = loss.slope * grad_loss / Tracked{active, 0};
      gradient[row] = g.value;
      gradient_error[row] = g.error;
    }
  }

  const TokenRows logits(forward, call.logits);
  auto result = logits.logp_backward(lse, gradient);
  const DataError error = logp_backward(result);
  // What an error of the token's gradient does to its row.
  auto errors = logits.logp_backward(lse, gradient_error);
  logp_backward(errors);
  for (size_t i = 0; i < result.grad_logits.cond.size(); ++i) {
    if (!std::isfinite(result.grad_logits.value[i])) continue;
    // Where the row's own factor is 0 but for rounding, what is left is the product of both errors.
    const double of_gradient = std::fabs(errors.grad_logits.value[i]) + 0x1p-24 * errors.grad_logits.cond[i];
    // Beyond fp64 there is no telling.
    result.grad_logits.cond[i] += std::isnan(of_gradient) ? std::numeric_limits<double>::infinity() : of_gradient;
  }
  take(call.grad_logits, result.grad_logits);
  return error;
}

}  // namespace rlk::golden
