// Importance ratio and KL estimate of a token: the declaration's formula, fp64.
#include "core/golden/ratio_kl.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// F(d)
Tracked estimate(int64_t kind, Tracked d) {
  switch (kind) {
    case RLK_RATIO_KL_KL_KIND_K1:
      return -d;
    case RLK_RATIO_KL_KL_KIND_ABS:
      return abs(d);
    case RLK_RATIO_KL_KL_KIND_K2:
      // Of two log-probabilities that are off by eps each and are equal, the square is off by eps^2 (eps of fp32).
      return Tracked(0.5) * d * d + Tracked(0.0, 0x1p-25 * d.error * d.error);
    default:
      return d.value == kInfinity ? Tracked(kInfinity) : exp(d) - d - Tracked(1.0);
  }
}

// F'(d)
Tracked slope(int64_t kind, Tracked d) {
  switch (kind) {
    case RLK_RATIO_KL_KL_KIND_K1:
      return -1.0;
    case RLK_RATIO_KL_KL_KIND_ABS:
      return std::isnan(d.value) ? d.value : d.value > 0 ? 1.0 : d.value < 0 ? -1.0 : 0.0;
    case RLK_RATIO_KL_KL_KIND_K2:
      return d;
    default:
      return exp(d) - Tracked(1.0);
  }
}

}  // namespace

TokenRatioKl token_ratio_kl(const RatioKlRules& rules, Tracked logp, std::optional<Tracked> old_logp,
                            std::optional<Tracked> ref_logp) {
  TokenRatioKl token;
  Tracked weight = 1.0, d_weight = 1.0;
  token.ratio = token.d_ratio = 1.0;
  if (old_logp) {
    const Tracked delta = logp - *old_logp;
    token.ratio = exp(clamp(delta, rules.log_ratio_clamp));
    token.d_ratio = inside(delta, rules.log_ratio_clamp) ? token.ratio : Tracked(0.0);
    weight = d_weight = exp(delta);
  } else if (std::isnan(logp.value)) {
    token.ratio = token.d_ratio = weight = d_weight = logp.value;
  }
  if (!ref_logp) return token;

  const Tracked difference = *ref_logp - logp;
  const Tracked d = clamp(difference, rules.diff_clamp);
  const Tracked f = estimate(rules.kl_kind, d);
  const Tracked product = rules.weighted ? weight * f : f;
  token.kl = clamp(product, rules.value_clamp);
  if (rules.k2_gradient) {
    token.d_kl = -difference;
    return token;
  }
  if (!inside(product, rules.value_clamp)) return token;
  const Tracked through_d = inside(difference, rules.diff_clamp) ? -slope(rules.kl_kind, d) : Tracked(0.0);
  token.d_kl = rules.weighted ? d_weight * f + weight * through_d : through_d;
  return token;
}

Answer answer_ratio_kl(const Call& call) {
  const auto& params = call.params_as<rlk_ratio_kl_params>();
  const View& logp = call[RLK_RATIO_KL_IN_LOGP];
  Answer answer;
  answer.outputs.resize(RLK_RATIO_KL_N_OUTPUTS);
  for (int64_t n = 0; n < logp.shape[0]; ++n) {
    TokenRatioKl token;
    token.ratio = params.masked_ratio;
    if (is_kept(call[RLK_RATIO_KL_IN_MASK], n)) {
      token = token_ratio_kl(ratio_kl_rules(params), logp.load(n), maybe(call[RLK_RATIO_KL_IN_OLD_LOGP], n),
                             maybe(call[RLK_RATIO_KL_IN_REF_LOGP], n));
    }
    put(answer.outputs[RLK_RATIO_KL_OUT_RATIO], token.ratio);
    put(answer.outputs[RLK_RATIO_KL_OUT_KL], call.wants(RLK_RATIO_KL_OUT_KL), token.kl);
  }
  return answer;
}

}  // namespace rlk::golden
