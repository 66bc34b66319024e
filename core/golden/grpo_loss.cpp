// The GRPO loss of logits and rewards: logp's reference answer, then the declaration's formula over its tokens.
#include <cmath>
#include <limits>

#include "core/golden/grpo.hpp"

namespace rlk::golden {
namespace {}  // namespace

DataError grpo_loss(GrpoCall& call) {
  if (const DataError error = group_error(call); error.kind != kNoDataError) {
    for (Output* scalar : {&call.loss, &call.policy_loss, &call.kl}) fill(*scalar, 1, kNan);
    for (Output* of_tokens : {&call.lse, &call.logp, &call.ref_logp}) fill(*of_tokens, call.B * call.T, kNan);
    fill(call.advantages, call.B, kNan);
    return error;
  }

  const std::vector<Tracked> advantages = group_advantages(call);
  const TokenRows policy_rows(call, call.logits);
  CallOf<sdk::ops::Logp> policy = policy_rows.logp(), reference;
  DataError error = logp(policy);
  if (call.ref_logits.present()) {
    const TokenRows reference_rows(call, call.ref_logits);
    reference = reference_rows.logp();
    keep_first(error, logp(reference));
  } else {
    fill(reference.logp, call.B * call.T, 0);
  }

  Tracked surrogate, kl;
  double active = 0;
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t t = 0; t < call.T; ++t) {
      if (!is_active(call, b, t)) continue;
      const auto row = static_cast<size_t>(b * call.T + t);
      const Dual lp(Tracked{policy.logp.value[row], policy.logp.cond[row]});
      surrogate =
          surrogate + clipped_surrogate(call, lp, call.old_logp.load(b, t), advantages[static_cast<size_t>(b)]).value;
      if (call.ref_logits.present()) {
        kl = kl + k3(Dual(Tracked{reference.logp.value[row], reference.logp.cond[row]}) - lp).value;
      }
      active += 1;
    }
  }
  if (active > 0) {
    surrogate = surrogate / Tracked{active, 0};
    kl = kl / Tracked{active, 0};
  }
  if (error.kind != kNoDataError) surrogate = {kNan, 0};
  if (error.kind != kNoDataError) kl = {kNan, 0};
  Tracked loss = surrogate;
  if (call.params.beta != 0) loss = loss + parameter(call.params.beta) * kl;
  put_all(call.loss, {loss});
  put_all(call.policy_loss, {surrogate});
  put_all(call.kl, {kl});
  take(call.lse, policy.lse);
  take(call.logp, policy.logp);
  take(call.ref_logp, reference.logp);
  put_all(call.advantages, advantages);
  return error;
}

}  // namespace rlk::golden
