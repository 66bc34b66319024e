// The gradient of the policy loss: what every token's loss gives to its own logp, and what the losses of a sequence
// give together to its mean, of which every logp has a share.
#include <rlk/ops/policy_loss_backward.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/golden/policy.hpp"

namespace rlk::golden {

Answer answer_policy_loss_backward(const Call& call) {
  PolicyCall golden;
  golden.logp = call[RLK_POLICY_LOSS_BACKWARD_IN_LOGP];
  golden.advantages = call[RLK_POLICY_LOSS_BACKWARD_IN_ADVANTAGES];
  golden.old_logp = call[RLK_POLICY_LOSS_BACKWARD_IN_OLD_LOGP];
  golden.mask = call[RLK_POLICY_LOSS_BACKWARD_IN_MASK];
  golden.ref_logp = call[RLK_POLICY_LOSS_BACKWARD_IN_REF_LOGP];
  golden.rollout_logp = call[RLK_POLICY_LOSS_BACKWARD_IN_ROLLOUT_LOGP];
  golden.entropy = call[RLK_POLICY_LOSS_BACKWARD_IN_ENTROPY];
  golden.weight = call[RLK_POLICY_LOSS_BACKWARD_IN_WEIGHT];
  golden.sequence_advantages = call[RLK_POLICY_LOSS_BACKWARD_IN_SEQUENCE_ADVANTAGES];
  golden.cu_seqlens = call[RLK_POLICY_LOSS_BACKWARD_IN_CU_SEQLENS];
  // The parameters are those of the forward, one by one.
  golden.params = std::bit_cast<rlk_policy_loss_params>(call.params_as<rlk_policy_loss_backward_params>());
  const View& grad_per_token = call[RLK_POLICY_LOSS_BACKWARD_IN_GRAD_PER_TOKEN];
  const double coefficient = golden.params.entropy_coefficient;

  const PolicyBatch batch(golden);
  const bool bad = batch.error().kind != kNoDataError;
  const auto tokens = static_cast<size_t>(batch.tokens());
  const double start = bad ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  Output grad_logp{std::vector<double>(tokens, start), std::vector<double>(tokens, 0.0)};
  Output grad_entropy = grad_logp;
  if (bad) return {{std::move(grad_logp), std::move(grad_entropy)}, batch.error()};

  const auto put = [](Output& output, int64_t at, const Tracked& number) {
    output.value[static_cast<size_t>(at)] = number.value;
    output.cond[static_cast<size_t>(at)] = std::isfinite(number.value) ? kTiny + number.error : 0.0;
  };
  std::vector<int64_t> active;
  int64_t selected = 0;
  for (int64_t b = 0; b < batch.sequences(); ++b) {
    const std::vector<PolicyToken> own = batch.losses(b, PolicySeed::none);
    active.push_back(static_cast<int64_t>(own.size()));
    for (const PolicyToken& token : own) selected += token.selected ? 1 : 0;
  }
  const std::vector<Tracked> weights = batch.token_weights(active);
  const bool has_mean = golden.params.importance_ratio == RLK_POLICY_LOSS_IMPORTANCE_RATIO_SEQUENCE ||
                        golden.params.kind == RLK_POLICY_LOSS_KIND_GMPO;
  const Tracked grad_loss{call[RLK_POLICY_LOSS_BACKWARD_IN_GRAD_LOSS].load(0), 0};
  for (int64_t b = 0; b < batch.sequences(); ++b) {
    const auto gradient_of_loss = [&](const PolicyToken& token) {
      const bool none = golden.params.aggregation == RLK_POLICY_LOSS_AGGREGATION_NONE;
      const Tracked gradient = none ? Tracked{} : grad_loss * weights[static_cast<size_t>(b)];
      if (!grad_per_token.present()) return gradient;
      return gradient + Tracked{batch.load(grad_per_token, b, token.t), 0};
    };
    Tracked of_mean;
    if (has_mean) {
      for (const PolicyToken& token : batch.losses(b, PolicySeed::sequence_mean)) {
        of_mean = of_mean + gradient_of_loss(token) * token.loss.slope;
      }
    }
    for (const PolicyToken& token : batch.losses(b, PolicySeed::own_logp)) {
      const Tracked own = gradient_of_loss(token) * token.loss.slope;
      put(grad_logp, batch.flat(b, token.t), has_mean ? own + of_mean * token.share : own);
      if (!token.selected) continue;
      const Tracked of_bonus =
          batch.has_own_bonus() ? grad_loss / batch.bonus_divisor(selected) : gradient_of_loss(token);
      put(grad_entropy, batch.flat(b, token.t), -(parameter(coefficient) * of_bonus));
    }
  }
  return {{std::move(grad_logp), std::move(grad_entropy)}, {}};
}

}  // namespace rlk::golden
