// The gradient of the policy loss: what every token's loss gives to its own logp, and what the losses of a sequence
// give together to its mean, of which every logp has a share.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include <cmath>
#include <limits>

#include "core/golden/factors.hpp"
#include "core/golden/policy.hpp"

namespace rlk::golden {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

DataError policy_loss_backward(CallOf<sdk::ops::PolicyLossBackward>& call) {
  const auto forward = sdk::forward_of<PolicyCall>(call);
  const PolicyBatch batch(forward, call.params.clamp_gradient);
  const bool bad = batch.error().kind != kNoDataError;
  for (Output* output : {&call.grad_logp, &call.grad_entropy}) {
    fill(*output, batch.tokens(), bad ? std::numeric_limits<double>::quiet_NaN() : 0.0);
  }
  if (bad) return batch.error();

  const auto put = [](Output& output, int64_t at, const Tracked& number) {
    output.value[static_cast<size_t>(at)] = number.value;
    output.cond[static_cast<size_t>(at)] = std::isfinite(number.value) ? kTiny + number.error : 0.0;
  };
  std::vector<int64_t> active;
  int64_t selected = 0;
  for (int64_t b = 0; b < batch.sequences(); ++b) {
    const PolicyBatch::Active own = batch.active(b);
    active.push_back(own.tokens);
    selected += own.selected;
  }
  const std::vector<Tracked> weights = loss_weights(call.params, active);
  const bool has_mean = call.params.importance_ratio == ImportanceRatio::sequence ||
                        call.params.importance_ratio == ImportanceRatio::sequence_sum || call.params.kind == Kind::gmpo;
  const Tracked grad_loss{call.grad_loss.load(0), 0};
  for (int64_t b = 0; b < batch.sequences(); ++b) {
    const auto gradient_of_loss = [&](const PolicyToken& token) {
      const bool none = call.params.aggregation == Aggregation::none;
      const Tracked gradient = none ? Tracked{} : grad_loss * weights[static_cast<size_t>(b)];
      if (!call.grad_per_token.present()) return gradient;
      return gradient + Tracked{batch.load(call.grad_per_token, b, token.t), 0};
    };
    Tracked of_mean;
    if (has_mean) {
      for (const PolicyToken& token : batch.losses(b, PolicySeed::sequence_mean)) {
        of_mean = of_mean + weighted(gradient_of_loss(token), token.loss.slope);
      }
    }
    for (const PolicyToken& token : batch.losses(b, PolicySeed::own_logp)) {
      const Tracked own = weighted(gradient_of_loss(token), token.loss.slope);
      put(call.grad_logp, batch.flat(b, token.t), has_mean ? own + times(of_mean, token.share) : own);
      if (!token.selected) continue;
      const Tracked of_bonus =
          batch.has_own_bonus() ? grad_loss / batch.bonus_divisor(selected) : gradient_of_loss(token);
      put(call.grad_entropy, batch.flat(b, token.t), -(parameter(call.params.entropy_coefficient) * of_bonus));
    }
  }
  return {};
}

}  // namespace rlk::golden
