// Which estimate, which clamps, and what each passes back.
#include "core/cpu/policy/ratio_kl.hpp"

#include <cmath>
#include <limits>

namespace rlk::cpu {
namespace {

// NaN is neither above nor below: it stays, and its gradient with it.
double clamp(double x, double limit) {
  if (limit == 0) return x;
  return x > limit ? limit : x < -limit ? -limit : x;
}
bool is_outside(double x, double limit) {
  return limit != 0 && (x > limit || x < -limit);
}

}  // namespace

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

TokenRatioKl token_ratio_kl(const RatioKlOptions& options, double logp, const double* old_logp,
                            const double* ref_logp) {
  // Without old_logp it is logp itself, its gradient stopped; 1 times a NaN is a NaN.
  const double delta = old_logp != nullptr ? logp - *old_logp : std::isnan(logp) ? logp : 0.0;
  TokenRatioKl token{};
  token.ratio = std::exp(clamp(delta, options.log_ratio_clamp));
  token.ratio_slope = is_outside(delta, options.log_ratio_clamp) ? 0 : token.ratio;
  if (ref_logp == nullptr) return token;

  const double difference = *ref_logp - logp;
  const KlEstimate f = kl_estimate(options.kl_kind, clamp(difference, options.diff_clamp));
  const double weight = options.weighted ? std::exp(delta) : 1;
  const double product = options.weighted ? weight * f.value : f.value;
  token.kl = clamp(product, options.value_clamp);
  if (options.k2_gradient) {
    token.kl_slope = -difference;
  } else if (!is_outside(product, options.value_clamp)) {
    const double through_d = is_outside(difference, options.diff_clamp) ? 0 : -f.slope;
    token.kl_slope = options.weighted ? product + weight * through_d : through_d;
  }
  return token;
}

TokenRatioKl token_ratio_kl(const RatioKlOptions& options, double logp, const Array& old_logp, const Array& ref_logp,
                            int64_t n) {
  const double old_value = old_logp.present() ? old_logp.get(n) : 0;
  const double ref_value = ref_logp.present() ? ref_logp.get(n) : 0;
  return token_ratio_kl(options, logp, old_logp.present() ? &old_value : nullptr,
                        ref_logp.present() ? &ref_value : nullptr);
}

void ratio_kl(const RatioKlArgs& args, const ParallelFor& hook) {
  parallel_for(hook, args.n, kGrainElements, [&args](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      TokenRatioKl token{args.masked_ratio, 0, 0, 0};
      if (args.mask.keeps(n)) token = token_ratio_kl(args.options, args.logp.get(n), args.old_logp, args.ref_logp, n);
      args.ratio.put(n, token.ratio);
      if (args.kl.present()) args.kl.put(n, token.kl);
    }
  });
}

void ratio_kl_backward(const RatioKlBackwardArgs& args, const ParallelFor& hook) {
  parallel_for(hook, args.n, kGrainElements, [&args](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      double gradient = 0;
      if (args.mask.keeps(n)) {
        const TokenRatioKl token = token_ratio_kl(args.options, args.logp.get(n), args.old_logp, args.ref_logp, n);
        gradient = args.grad_ratio.get(n) * token.ratio_slope;
        if (args.grad_kl.present()) gradient += args.grad_kl.get(n) * token.kl_slope;
      }
      args.grad_logp.put(n, gradient);
    }
  });
}

}  // namespace rlk::cpu
