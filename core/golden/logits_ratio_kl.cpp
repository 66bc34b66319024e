// Importance ratio and KL estimate from logits: golden logp of both models, then ratio_kl.
#include <rlk/sdk/ops/logits_ratio_kl.hpp>

#include <cstring>

#include "core/golden/logp_rows.hpp"
#include "core/golden/ratio_kl.hpp"

namespace rlk::golden {

Answer answer_logits_ratio_kl(const Call& call) {
  sdk::ops::logits_ratio_kl::Params params;
  std::memcpy(static_cast<void*>(&params), call.params, sizeof(params));
  LogpCall policy;
  policy.logits = call[RLK_LOGITS_RATIO_KL_IN_LOGITS];
  policy.ids = call[RLK_LOGITS_RATIO_KL_IN_IDS];
  policy.mask = call[RLK_LOGITS_RATIO_KL_IN_MASK];
  policy.temperature = params.temperature;
  policy.ignore_index = params.ignore_index;
  policy.want_lse = true;
  const LogpResult of_policy = logp(policy);
  LogpCall reference = policy;
  reference.logits = call[RLK_LOGITS_RATIO_KL_IN_REF_LOGITS];
  const bool has_reference = reference.logits.present();
  const LogpResult of_reference = has_reference ? logp(reference) : LogpResult{};

  Answer answer;
  answer.outputs.resize(RLK_LOGITS_RATIO_KL_N_OUTPUTS);
  answer.error = of_policy.error;
  if (of_reference.error.kind != kNoDataError) keep_first(answer.error, of_reference.error);
  const auto at = [](const Output& output, int64_t n) {
    return Tracked(output.value[static_cast<size_t>(n)], output.cond[static_cast<size_t>(n)]);
  };
  for (int64_t n = 0; n < policy.ids.shape[0]; ++n) {
    const Tracked own = at(of_policy.logp, n);
    const std::optional<Tracked> ref = has_reference ? std::optional(at(of_reference.logp, n)) : std::nullopt;
    TokenRatioKl token;
    token.ratio = params.masked_ratio;
    if (!is_ignored(policy, n)) {
      token = token_ratio_kl(params, own, maybe(call[RLK_LOGITS_RATIO_KL_IN_OLD_LOGP], n), ref);
    }
    const auto put_output = [&](int output, Tracked value) {
      put(answer.outputs[static_cast<size_t>(output)], call.wants(output), value);
    };
    put_output(RLK_LOGITS_RATIO_KL_OUT_RATIO, token.ratio);
    put_output(RLK_LOGITS_RATIO_KL_OUT_KL, token.kl);
    put_output(RLK_LOGITS_RATIO_KL_OUT_LOGP, own);
    put_output(RLK_LOGITS_RATIO_KL_OUT_LSE, at(of_policy.lse, n));
    put_output(RLK_LOGITS_RATIO_KL_OUT_REF_LOGP, ref.value_or(0.0));
  }
  return answer;
}

}  // namespace rlk::golden
