// Importance ratio and KL estimate from logits: golden logp of both models, then ratio_kl, fp64.
#include <rlk/sdk/ops/logits_ratio_kl.hpp>

#include "core/golden/logp_rows.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/ratio_kl.hpp"

namespace rlk::golden {

DataError logits_ratio_kl(CallOf<sdk::ops::LogitsRatioKl>& call) {
  LogpCall policy;
  policy.logits = call.logits;
  policy.ids = call.ids;
  policy.mask = call.mask;
  policy.temperature = call.params.temperature;
  policy.ignore_index = call.params.ignore_index;
  policy.want_lse = true;
  const LogpResult of_policy = logp(policy);
  LogpCall reference = policy;
  reference.logits = call.ref_logits;
  const bool has_reference = call.ref_logits.present();
  const LogpResult of_reference = has_reference ? logp(reference) : LogpResult{};

  const auto at = [](const Output& output, int64_t n) {
    return Tracked(output.value[static_cast<size_t>(n)], output.cond[static_cast<size_t>(n)]);
  };
  for (int64_t n = 0; n < call.N; ++n) {
    const Tracked own = at(of_policy.logp, n);
    const std::optional<Tracked> ref = has_reference ? std::optional(at(of_reference.logp, n)) : std::nullopt;
    TokenRatioKl token;
    token.ratio = call.params.masked_ratio;
    if (!is_ignored(policy, n)) token = token_ratio_kl(call.params, own, maybe(call.old_logp, n), ref);
    put(call.ratio, token.ratio);
    put(call.kl, token.kl);
    put(call.logp, own);
    put(call.lse, at(of_policy.lse, n));
    put(call.ref_logp, ref.value_or(0.0));
  }
  DataError error = of_policy.error;
  if (of_reference.error.kind != kNoDataError) keep_first(error, of_reference.error);
  return error;
}

}  // namespace rlk::golden
