// Value and derivative of each kind of policy loss and of each KL estimator, for one token.
//
// At kinks: the selected branch of min and max, half of each at a tie; what a clamp passes at its bounds is asked for.
#include "core/cpu/policy/policy_kinds.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/policy/ratio_kl.hpp"

namespace rlk::cpu {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

struct Bounds {
  double low, high;
};

// The ratio within bounds. Its derivative by the log ratio is the ratio itself, where the bounds pass it.
Slope clamped_ratio(const PolicyInput& token, const Bounds& bounds) {
  return {std::min(std::max(token.ratio, bounds.low), bounds.high),
          clamped_slope(token.ratio, token.ratio, bounds.low, bounds.high, token.at_bound)};
}
Bounds up_to(double cap) {
  return {-std::numeric_limits<double>::infinity(), cap};
}
Bounds ratio_bounds(const PolicyParams& params) {
  if (params.clip_form == ClipForm::raw) return {params.clip_low, params.clip_high};
  return {1 - params.clip_low, 1 + params.clip_high};
}

void mark_bounds(const PolicyInput& token, double x, const Bounds& bounds, PolicyTerm& term) {
  term.below = x < bounds.low && token.advantage < 0;
  term.above = x > bounds.high && token.advantage > 0;
}

PolicyTerm ppo(const PolicyParams& params, const PolicyInput& token) {
  const double a = token.advantage;
  const Bounds bounds = ratio_bounds(params);
  const Slope first = clamped_ratio(token, up_to(bound_or_none(params.delta)));
  const Slope second = clamped_ratio(token, bounds);

  PolicyTerm term;
  mark_bounds(token, token.ratio, bounds, term);
  const double loss1 = -first.value * a, loss2 = -second.value * a;
  term.clipped = loss2 > loss1;
  term.value = term.clipped ? loss2 : loss1;
  const double slope = loss1 == loss2 ? (first.slope + second.slope) / 2 : term.clipped ? second.slope : first.slope;
  term.d_log_ratio = -a * slope;
  if (params.dual_clip <= 0 || a >= 0) return term;

  const double loss3 = -params.dual_clip * a;
  if (term.value == loss3) term.d_log_ratio /= 2;
  if (term.value > loss3) {
    term.clipped_lower = true;
    term.value = loss3;
    term.d_log_ratio = 0;
  }
  return term;
}

PolicyTerm clip_cov(const PolicyParams& params, const PolicyInput& token) {
  PolicyTerm term = ppo(params, token);
  if (token.taken) term.value = term.d_log_ratio = 0;
  term.clipped = token.taken;
  return term;
}

PolicyTerm kl_cov(const PolicyParams& params, const PolicyInput& token) {
  PolicyTerm term;
  term.value = term.d_log_ratio = -token.ratio * token.advantage;
  term.clipped = token.taken;
  if (!token.taken) return term;
  const double x = token.logp - token.old_logp;
  term.value += params.cov_coefficient * std::fabs(x);
  term.d_logp = params.cov_coefficient * (x > 0 ? 1 : x < 0 ? -1 : 0);
  return term;
}

PolicyTerm weighted_logp(const PolicyInput& token, double weight) {
  PolicyTerm term;
  term.d_logp = -weight * token.advantage;
  term.value = term.d_logp * token.logp;
  return term;
}

PolicyTerm cispo(const PolicyParams& params, const PolicyInput& token) {
  const Bounds bounds = ratio_bounds(params);
  const double weight = std::min(std::max(token.ratio, bounds.low), bounds.high);
  PolicyTerm term = weighted_logp(token, weight);
  term.clipped = weight != token.ratio;
  mark_bounds(token, token.ratio, bounds, term);
  return term;
}

PolicyTerm sapo(const PolicyParams& params, const PolicyInput& token) {
  const double tau = token.advantage > 0 ? params.sapo_tau_positive : params.sapo_tau_negative;
  const double gate = 1 / (1 + std::exp(-tau * (token.ratio - 1)));
  const double rest = 1 / (1 + std::exp(tau * (token.ratio - 1)));  // 1 - gate without cancellation
  PolicyTerm term;
  term.value = -4 / tau * gate * token.advantage;
  // A saturated gate is flat, also where the ratio overflows.
  term.d_log_ratio = rest != 0 ? -4 * gate * rest * token.ratio * token.advantage : 0;
  return term;
}

PolicyTerm vespo(const PolicyParams& params, const PolicyInput& token, const PolicySequenceInput& sequence) {
  const bool positive = token.advantage >= 0;
  const double k = positive ? params.vespo_k_positive : params.vespo_k_negative;
  const double lambda = std::max(positive ? params.vespo_lambda_positive : params.vespo_lambda_negative, 1e-4);
  const double u = sequence.log_weight;
  double phi = std::exp(lambda + k * u - lambda * std::exp(u));
  if (!std::isfinite(phi)) phi = 0;
  PolicyTerm term = weighted_logp(token, phi);
  term.phi = phi;
  return term;
}

PolicyTerm gmpo(const PolicyParams& params, const PolicyInput& token, const PolicySequenceInput& sequence) {
  PolicyTerm term;
  term.value = term.d_sequence = sequence.geometric;
  const Bounds bounds = {-params.clip_low, params.clip_high};
  mark_bounds(token, token.log_ratio, bounds, term);
  const bool differs = token.log_ratio < bounds.low || token.log_ratio > bounds.high;
  term.clipped = differs && token.advantage > 0;
  term.clipped_lower = differs && token.advantage < 0;
  return term;
}

PolicyTerm dro(const PolicyParams& params, const PolicyInput& token) {
  const double x = token.logp - token.old_logp;
  PolicyTerm term;
  term.value = -(token.logp * token.advantage - params.dro_beta / 2 * x * x);
  term.d_logp = -(token.advantage - params.dro_beta * x);
  return term;
}

bool dppo_valid(const PolicyParams& params, const PolicyInput& token) {
  const double p = std::exp(token.logp), q = std::exp(token.old_logp);
  if (std::isnan(token.advantage) || std::isnan(p) || std::isnan(q)) return true;  // which the loss is to show
  const bool positive = token.advantage > 0;
  if (params.kind == Kind::dppo_tv) {
    return positive ? p - q <= params.clip_high : p - q >= -params.clip_low;
  }
  const double kl = q * (token.old_logp - token.logp) + (1 - q) * std::log((1 - q + 1e-8) / (1 - p + 1e-8));
  return positive ? kl <= params.clip_high || p <= q : kl <= params.clip_low || p >= q;
}

PolicyTerm dppo(const PolicyParams& params, const PolicyInput& token) {
  PolicyTerm term;
  if (dppo_valid(params, token)) {
    const double cap = bound_or_none(params.delta);
    term = weighted_logp(token, clamped_ratio(token, up_to(cap)).value);
    term.clipped_lower = token.ratio > cap;
  } else {
    term.clipped = true;
  }
  return term;
}

}  // namespace

bool is_clipped(const PolicyParams& params, const PolicyInput& token) {
  return ppo(params, token).clipped;
}

PolicyTerm policy_term(const PolicyParams& params, const PolicyInput& token, const PolicySequenceInput& sequence) {
  switch (params.kind) {
    case Kind::ppo:
      return ppo(params, token);
    case Kind::cispo:
      return cispo(params, token);
    case Kind::sapo:
      return sapo(params, token);
    case Kind::vespo:
      return vespo(params, token, sequence);
    case Kind::gmpo:
      return gmpo(params, token, sequence);
    case Kind::gpg:
      return weighted_logp(token, 1);
    case Kind::dro:
      return dro(params, token);
    case Kind::dppo_tv:
    case Kind::dppo_kl:
      return dppo(params, token);
    case Kind::clip_cov:
      return clip_cov(params, token);
    case Kind::kl_cov:
      return kl_cov(params, token);
  }
  return {};
}

Slope geometric_term(const PolicyParams& params, double advantage, double log_ratio, double at_bound) {
  if (advantage > 0 && log_ratio > params.clip_high) return {params.clip_high, 0};
  if (advantage < 0 && log_ratio < -params.clip_low) return {-params.clip_low, 0};
  if (advantage == 0) return {0, 0};
  // Beyond the other bound the log ratio itself is chosen; inside and at the bounds it ties with its clamp.
  const bool tie = log_ratio >= -params.clip_low && log_ratio <= params.clip_high;
  const double passes = tie ? clamp_gradient(log_ratio, -params.clip_low, params.clip_high, at_bound) : 1;
  return {log_ratio, (1 + passes) / 2};
}

KlTerm kl_term(const PolicyParams& params, double logp, double old_logp, double ref_logp, double ratio,
               double at_bound) {
  const double difference = ref_logp - logp;
  const double diff_bound = bound_or_none(params.kl_diff_clamp), bound = bound_or_none(params.kl_value_clamp);
  const double d = std::min(std::max(difference, -diff_bound), diff_bound);
  const KlEstimate estimate = kl_estimate(params.kl_kind, d);
  KlTerm term = {estimate.value, clamped_slope(-estimate.slope, difference, -diff_bound, diff_bound, at_bound), 0};
  if (params.kl_bias_correction != KlBiasCorrection::off) {
    term.value *= ratio;
    term = {term.value, term.d_logp * ratio, term.value};
  }
  term.d_logp = clamped_slope(term.d_logp, term.value, -bound, bound, at_bound);
  term.d_log_ratio = clamped_slope(term.d_log_ratio, term.value, -bound, bound, at_bound);
  term.value = std::min(std::max(term.value, -bound), bound);
  if (params.kl_gradient == KlGradient::k2) term = {term.value, -difference, 0};
  if (params.kl_gradient == KlGradient::k2_weighted) {
    term = {term.value, -difference * k2_weight(logp, old_logp, params.kl_gradient_weight_max), 0};
  }
  return term;
}

}  // namespace rlk::cpu
