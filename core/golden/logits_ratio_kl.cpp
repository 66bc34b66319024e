// Importance ratio and KL estimate from logits: golden logp of both models, then ratio_kl, fp64.
#include <rlk/sdk/ops/logits_ratio_kl.hpp>

#include "core/golden/logp_rows.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/ratio_kl.hpp"

namespace rlk::golden {

DataError logits_ratio_kl(CallOf<sdk::ops::LogitsRatioKl>& call) {
  CallOf<sdk::ops::Logp> policy;
  policy.logits = call.logits;
  policy.ids = call.ids;
  policy.mask = call.mask;
  policy.N = policy.R = call.N;
  policy.V = call.V;
  policy.params.temperature = call.params.temperature;
  policy.params.ignore_index = call.params.ignore_index;
  CallOf<sdk::ops::Logp> reference = policy;
  reference.logits = call.ref_logits;
  DataError error = logp(policy);
  const bool has_reference = call.ref_logits.present();
  if (has_reference) keep_first(error, logp(reference));

  const auto at = [](const Output& output, int64_t n) {
    return Tracked(output.value[static_cast<size_t>(n)], output.cond[static_cast<size_t>(n)]);
  };
  for (int64_t n = 0; n < call.N; ++n) {
    const Tracked own = at(policy.logp, n);
    const std::optional<Tracked> ref = has_reference ? std::optional(at(reference.logp, n)) : std::nullopt;
    TokenRatioKl token;
    token.ratio = call.params.masked_ratio;
    if (!is_ignored(policy, n)) token = token_ratio_kl(call.params, own, maybe(call.old_logp, n), ref);
    put(call.ratio, token.ratio);
    put(call.kl, token.kl);
    put(call.logp, own);
    put(call.lse, at(policy.lse, n));
    put(call.ref_logp, ref.value_or(0.0));
  }
  return error;
}

}  // namespace rlk::golden
