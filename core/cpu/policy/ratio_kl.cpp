// Which estimate, which clamps, and what each passes back.
#include "core/cpu/policy/ratio_kl.hpp"

#include <rlk/sdk/ops/logits_ratio_kl.hpp>
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using sdk::ops::ratio_kl::KlWeight;
using sdk::ops::ratio_kl_backward::KlGradient;
using Forward = CallOf<sdk::ops::RatioKl>;
using Backward = CallOf<sdk::ops::RatioKlBackward>;

// NaN is neither above nor below: it stays, and its gradient with it.
double clamp(double x, double limit) {
  if (limit == 0) return x;
  return x > limit ? limit : x < -limit ? -limit : x;
}
// What that clamp passes of a slope.
double clamped_slope(double slope, double x, double limit, double at_bound) {
  return cpu::clamped_slope(slope, x, -bound_or_none(limit), bound_or_none(limit), at_bound);
}

// Of the gradient at a clamp's bound. Forwards have no such parameter, and no slopes.
template <class Params>
double at_bound_of(const Params& params) {
  if constexpr (requires { params.clamp_gradient; }) {
    return gradient_at_bound(params.clamp_gradient);
  } else {
    return 0;
  }
}

// Of the gradient of k2, unclamped (straight-through), where that is the gradient of kl; else none. Forwards have no
// such parameter.
template <class Params>
std::optional<double> weight_of_k2(const Params& params, double delta) {
  if constexpr (requires { params.kl_gradient; }) {
    if (params.kl_gradient == KlGradient::k2) return 1;
    if (params.kl_gradient == KlGradient::k2_weighted) return k2_weight(delta, 0, params.kl_gradient_weight_max);
  }
  return std::nullopt;
}

}  // namespace

double k2_weight(double logp, double old_logp, double largest) {
  return std::min(std::exp(logp - old_logp), largest);
}

KlEstimate kl_estimate(KlKind kind, double d) {
  switch (kind) {
    case KlKind::k1:
      return {-d, -1};
    case KlKind::abs:
      return {std::fabs(d), d > 0 ? 1.0 : d < 0 ? -1.0 : d};
    case KlKind::k2:
      return {d * d / 2, d};
    case KlKind::k3:
      break;
  }
  // expm1 keeps the digits that exp(d) - 1 loses near 0.
  const double power = std::expm1(d);
  return {std::isinf(power) ? power : power - d, power};
}

template <class Params>
TokenRatioKl token_ratio_kl(const Params& params, double logp, const Array& old_logp, const Array& ref_logp,
                            int64_t n) {
  // Without old_logp it is logp itself, its gradient stopped; 1 times a NaN is a NaN.
  const double delta = old_logp.present() ? logp - old_logp.get(n) : std::isnan(logp) ? logp : 0.0;
  TokenRatioKl token{};
  token.ratio = std::exp(clamp(delta, params.log_ratio_clamp));
  const double at_bound = at_bound_of(params);
  token.ratio_slope = clamped_slope(token.ratio, delta, params.log_ratio_clamp, at_bound);
  if (!ref_logp.present()) return token;

  const double difference = ref_logp.get(n) - logp;
  const KlEstimate f = kl_estimate(params.kl_kind, clamp(difference, params.diff_clamp));
  const bool weighted = params.kl_weight == KlWeight::ratio;
  const double weight = weighted ? std::exp(delta) : 1;
  const double product = weighted ? weight * f.value : f.value;
  token.kl = clamp(product, params.value_clamp);
  if (const std::optional<double> of_k2 = weight_of_k2(params, delta)) {
    token.kl_slope = -difference * *of_k2;
  } else {
    const double through_d = clamped_slope(-f.slope, difference, params.diff_clamp, at_bound);
    token.kl_slope =
        clamped_slope(weighted ? product + weight * through_d : through_d, product, params.value_clamp, at_bound);
  }
  return token;
}
template TokenRatioKl token_ratio_kl(const sdk::ops::logits_ratio_kl::Params&, double, const Array&, const Array&,
                                     int64_t);
template TokenRatioKl token_ratio_kl(const sdk::ops::logits_ratio_kl_backward::Params&, double, const Array&,
                                     const Array&, int64_t);

namespace {

DataError ratio_kl(const Forward& call, const Context& context) {
  parallel_for(context.parallel, call.N, kGrainElements, [&call](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      TokenRatioKl token{call.params.masked_ratio, 0, 0, 0};
      if (call.mask.keeps(n)) token = token_ratio_kl(call.params, call.logp.get(n), call.old_logp, call.ref_logp, n);
      call.ratio.put(n, token.ratio);
      if (call.kl.present()) call.kl.put(n, token.kl);
    }
  });
  return {};
}

DataError ratio_kl_backward(const Backward& call, const Context& context) {
  parallel_for(context.parallel, call.N, kGrainElements, [&call](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      double gradient = 0;
      if (call.mask.keeps(n)) {
        const TokenRatioKl token = token_ratio_kl(call.params, call.logp.get(n), call.old_logp, call.ref_logp, n);
        gradient = call.grad_ratio.get(n) * token.ratio_slope;
        if (call.grad_kl.present()) gradient += call.grad_kl.get(n) * token.kl_slope;
      }
      call.grad_logp.put(n, gradient);
    }
  });
  return {};
}

template <class Call>
double operations(const Call& call) {
  return static_cast<double>(call.N) * 2000;
}

}  // namespace

RLK_CPU_KERNEL(RatioKl, .run = ratio_kl, .operations = operations<Forward>);
RLK_CPU_KERNEL(RatioKlBackward, .run = ratio_kl_backward, .operations = operations<Backward>);

}  // namespace rlk::cpu
