// The gradient of the GRPO loss: the derivative of each token's loss by its logp, through logp's reference backward.
#include <rlk/ops/grpo_loss_backward.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/golden/grpo.hpp"

namespace rlk::golden {

Answer answer_grpo_loss_backward(const Call& call) {
  GrpoCall golden;
  golden.logits = call[RLK_GRPO_LOSS_BACKWARD_IN_LOGITS];
  golden.ids = call[RLK_GRPO_LOSS_BACKWARD_IN_IDS];
  golden.old_logp = call[RLK_GRPO_LOSS_BACKWARD_IN_OLD_LOGP];
  golden.rewards = call[RLK_GRPO_LOSS_BACKWARD_IN_REWARDS];
  golden.mask = call[RLK_GRPO_LOSS_BACKWARD_IN_MASK];
  golden.group_boundaries = call[RLK_GRPO_LOSS_BACKWARD_IN_GROUP_BOUNDARIES];
  // The parameters are those of the forward, one by one.
  golden.params = std::bit_cast<rlk_grpo_loss_params>(call.params_as<rlk_grpo_loss_backward_params>());
  const View& saved_lse = call[RLK_GRPO_LOSS_BACKWARD_IN_LSE];
  const View& ref_logp = call[RLK_GRPO_LOSS_BACKWARD_IN_REF_LOGP];
  const int64_t sequences = golden.sequences(), tokens = golden.tokens(), vocab = golden.logits.shape[2];
  const auto rows = static_cast<size_t>(sequences * tokens);

  if (const DataError error = group_error(golden); error.kind != kNoDataError) {
    const size_t size = rows * static_cast<size_t>(vocab);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {{{std::vector<double>(size, nan), std::vector<double>(size, 0.0)}}, error};
  }

  const std::vector<Tracked> advantages = group_advantages(golden);
  double active = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    for (int64_t t = 0; t < tokens; ++t) active += golden.is_active(b, t) ? 1 : 0;
  }
  const Tracked grad_loss{call[RLK_GRPO_LOSS_BACKWARD_IN_GRAD_LOSS].load(0), 0};
  std::vector<double> lse(rows, 0.0), gradient(rows, 0.0), gradient_error(rows, 0.0);
  for (int64_t b = 0; b < sequences; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      if (!golden.is_active(b, t)) continue;
      const auto row = static_cast<size_t>(b * tokens + t);
      lse[row] = saved_lse.load(b, t);
      const int64_t id = golden.ids.load_int(b, t);
      if (id < 0 || id >= vocab) continue;  // logp_backward tells
      const Tracked z = Tracked{golden.logits.load(b, t, id), 0} / parameter(golden.params.temperature);
      const Dual logp(z - Tracked{lse[row], std::fabs(lse[row])}, {1, 0});
      Dual loss = clipped_surrogate(golden, logp, golden.old_logp.load(b, t), advantages[static_cast<size_t>(b)]);
      if (golden.params.beta != 0) {
        loss = loss + Dual(parameter(golden.params.beta)) * k3(Dual(ref_logp.load(b, t)) - logp);
      }
      const Tracked g = loss.slope * grad_loss / Tracked{active, 0};
      gradient[row] = g.value;
      gradient_error[row] = g.error;
    }
  }

  const TokenRows logits(golden, golden.logits);
  LogpBackwardResult result = logp_backward(logits.logp_backward(lse, gradient));
  // What an error of the token's gradient does to its row.
  const LogpBackwardResult errors = logp_backward(logits.logp_backward(lse, gradient_error));
  for (size_t i = 0; i < result.grad_logits.cond.size(); ++i) {
    if (!std::isfinite(result.grad_logits.value[i])) continue;
    // Where the row's own factor is 0 but for rounding, what is left is the product of both errors.
    const double error = std::fabs(errors.grad_logits.value[i]) + 0x1p-24 * errors.grad_logits.cond[i];
    // Beyond fp64 there is no telling.
    result.grad_logits.cond[i] += std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return {{std::move(result.grad_logits)}, result.error};
}

}  // namespace rlk::golden
