// Importance ratio and KL estimate of a token, and the gradient: the declarations' formulas, fp64.
#include "core/golden/ratio_kl.hpp"

#include <rlk/sdk/ops/logits_ratio_kl.hpp>
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>
#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>

#include "core/golden/above_tangent.hpp"
#include "core/golden/factors.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {
using namespace sdk::ops::ratio_kl_backward;  // NOLINT(google-build-using-namespace): its enumerations

Tracked kl_estimate(KlKind kind, Tracked d) {
  if (kind == KlKind::k1) return -d;
  if (kind == KlKind::abs) return abs(d);
  // Of two log-probabilities that are off by eps each and are equal, the square is off by eps^2 (eps of fp32).
  if (kind == KlKind::k2) return Tracked(0.5) * d * d + Tracked(0.0, 0x1p-25 * d.error * d.error);
  return d.value == kInfinity ? Tracked(kInfinity) : Tracked(above_tangent(d.value), (exp(d) - d - Tracked(1.0)).error);
}

namespace {

// F'(d)
Tracked slope(KlKind kind, Tracked d) {
  if (kind == KlKind::k1) return -1.0;
  if (kind == KlKind::abs) return std::isnan(d.value) ? d.value : d.value > 0 ? 1.0 : d.value < 0 ? -1.0 : 0.0;
  if (kind == KlKind::k2) return d;
  return exp(d) - Tracked(1.0);
}

// What a clamp of x to [-limit, limit] passes of a slope. A forward has no slopes, and no rule for them.
template <class Params>
Tracked clamped_slope(const Params& params, Tracked slope, Tracked x, double limit) {
  if constexpr (requires { params.clamp_gradient; }) {
    const double bound = limit > 0 ? limit : kInfinity;
    const double passes = passed(x.value, -bound, bound, params.clamp_gradient);
    return passes == 0 ? Tracked(0.0) : passes == 1 ? slope : Tracked(passes) * slope;
  } else {
    return 0.0;
  }
}

}  // namespace

template <class Params>
TokenRatioKl token_ratio_kl(const Params& params, Tracked logp, std::optional<Tracked> old_logp,
                            std::optional<Tracked> ref_logp) {
  TokenRatioKl token;
  Tracked weight = 1.0, d_weight = 1.0;
  token.ratio = token.d_ratio = 1.0;
  if (old_logp) {
    const Tracked delta = logp - *old_logp;
    token.ratio = exp(clamp(delta, params.log_ratio_clamp));
    token.d_ratio = clamped_slope(params, token.ratio, delta, params.log_ratio_clamp);
    weight = d_weight = exp(delta);
  } else if (std::isnan(logp.value)) {
    token.ratio = token.d_ratio = weight = d_weight = logp.value;
  }
  if (!ref_logp) return token;

  const Tracked difference = *ref_logp - logp;
  const Tracked d = clamp(difference, params.diff_clamp);
  const Tracked f = kl_estimate(params.kl_kind, d);
  const bool is_weighted = params.kl_weight == KlWeight::ratio;
  const Tracked product = is_weighted ? times(weight, f) : f;
  token.kl = clamp(product, params.value_clamp);
  if constexpr (requires { params.kl_gradient; }) {
    if (params.kl_gradient == KlGradient::k2) {
      token.d_kl = -difference;
      return token;
    }
    if (params.kl_gradient == KlGradient::k2_weighted) {
      const bool capped = weight.value > params.kl_gradient_weight_max;
      token.d_kl =
          times(capped ? Tracked(params.kl_gradient_weight_max, params.kl_gradient_weight_max) : weight, -difference);
      return token;
    }
  }
  const Tracked through_d = clamped_slope(params, -slope(params.kl_kind, d), difference, params.diff_clamp);
  const Tracked d_product = is_weighted ? times(d_weight, f) + times(weight, through_d) : through_d;
  token.d_kl = clamped_slope(params, d_product, product, params.value_clamp);
  return token;
}

template TokenRatioKl token_ratio_kl(const sdk::ops::logits_ratio_kl::Params&, Tracked, std::optional<Tracked>,
                                     std::optional<Tracked>);
template TokenRatioKl token_ratio_kl(const sdk::ops::logits_ratio_kl_backward::Params&, Tracked, std::optional<Tracked>,
                                     std::optional<Tracked>);

DataError ratio_kl(CallOf<sdk::ops::RatioKl>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    TokenRatioKl token;
    token.ratio = call.params.masked_ratio;
    if (is_kept(call.mask, n)) {
      token = token_ratio_kl(call.params, call.logp.load(n), maybe(call.old_logp, n), maybe(call.ref_logp, n));
    }
    put(call.ratio, token.ratio);
    put(call.kl, token.kl);
  }
  return {};
}

DataError ratio_kl_backward(CallOf<sdk::ops::RatioKlBackward>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    Tracked gradient = 0.0;
    if (is_kept(call.mask, n)) {
      const TokenRatioKl token =
          token_ratio_kl(call.params, call.logp.load(n), maybe(call.old_logp, n), maybe(call.ref_logp, n));
      gradient = weighted(call.grad_ratio.load(n), token.d_ratio);
      if (call.grad_kl.present()) gradient = gradient + weighted(call.grad_kl.load(n), token.d_kl);
    }
    put(call.grad_logp, gradient);
  }
  return {};
}

}  // namespace rlk::golden
