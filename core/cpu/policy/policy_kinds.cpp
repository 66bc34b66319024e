// Value and derivative of each kind of policy loss and of each KL estimator, for one token.
//
// At kinks: the selected branch of min and max, half of each at a tie; a clamp passes the gradient at equality.
#include "core/cpu/policy/policy_kinds.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
namespace {

// The ratio under a cap; its derivative by the log ratio is the ratio itself, or 0 above the cap.
Slope capped(double ratio, double cap) {
  return ratio > cap ? Slope{cap, 0} : Slope{ratio, ratio};
}

struct Bounds {
  double low, high;
};
Bounds ratio_bounds(const PolicyOptions& options) {
  if (options.clip_form == ClipForm::raw) return {options.clip_low, options.clip_high};
  return {1 - options.clip_low, 1 + options.clip_high};
}

void mark_bounds(const PolicyInput& token, double x, const Bounds& bounds, PolicyTerm& term) {
  term.below = x < bounds.low && token.advantage < 0;
  term.above = x > bounds.high && token.advantage > 0;
}

PolicyTerm ppo(const PolicyOptions& options, const PolicyInput& token) {
  const double a = token.advantage;
  const Bounds bounds = ratio_bounds(options);
  const Slope first = capped(token.ratio, bound_or_none(options.delta));
  const bool inside = token.ratio >= bounds.low && token.ratio <= bounds.high;
  const Slope second = {std::min(std::max(token.ratio, bounds.low), bounds.high), inside ? token.ratio : 0};

  PolicyTerm term;
  mark_bounds(token, token.ratio, bounds, term);
  const double loss1 = -first.value * a, loss2 = -second.value * a;
  term.clipped = loss2 > loss1;
  term.value = term.clipped ? loss2 : loss1;
  term.d_log_ratio = -a * (term.clipped ? second.slope : first.slope);
  if (options.dual_clip <= 0 || a >= 0) return term;

  const double loss3 = -options.dual_clip * a;
  if (term.value == loss3) term.d_log_ratio /= 2;
  if (term.value > loss3) {
    term.clipped_lower = true;
    term.value = loss3;
    term.d_log_ratio = 0;
  }
  return term;
}

PolicyTerm weighted_logp(const PolicyInput& token, double weight) {
  PolicyTerm term;
  term.d_logp = -weight * token.advantage;
  term.value = term.d_logp * token.logp;
  return term;
}

PolicyTerm cispo(const PolicyOptions& options, const PolicyInput& token) {
  const Bounds bounds = ratio_bounds(options);
  const double weight = std::min(std::max(token.ratio, bounds.low), bounds.high);
  PolicyTerm term = weighted_logp(token, weight);
  term.clipped = weight != token.ratio;
  mark_bounds(token, token.ratio, bounds, term);
  return term;
}

PolicyTerm sapo(const PolicyOptions& options, const PolicyInput& token) {
  const double tau = token.advantage > 0 ? options.sapo_tau_positive : options.sapo_tau_negative;
  const double gate = 1 / (1 + std::exp(-tau * (token.ratio - 1)));
  const double rest = 1 / (1 + std::exp(tau * (token.ratio - 1)));  // 1 - gate without cancellation
  PolicyTerm term;
  term.value = -4 / tau * gate * token.advantage;
  // A saturated gate is flat, also where the ratio overflows.
  term.d_log_ratio = rest != 0 ? -4 * gate * rest * token.ratio * token.advantage : 0;
  return term;
}

PolicyTerm vespo(const PolicyOptions& options, const PolicyInput& token, const PolicySequenceInput& sequence) {
  const bool positive = token.advantage >= 0;
  const double k = positive ? options.vespo_k_positive : options.vespo_k_negative;
  const double lambda = std::max(positive ? options.vespo_lambda_positive : options.vespo_lambda_negative, 1e-4);
  const double u = sequence.log_weight;
  double phi = std::exp(lambda + k * u - lambda * std::exp(u));
  if (!std::isfinite(phi)) phi = 0;
  PolicyTerm term = weighted_logp(token, phi);
  term.phi = phi;
  return term;
}

PolicyTerm gmpo(const PolicyOptions& options, const PolicyInput& token, const PolicySequenceInput& sequence) {
  PolicyTerm term;
  term.value = term.d_sequence = sequence.geometric;
  const Bounds bounds = {-options.clip_low, options.clip_high};
  mark_bounds(token, token.log_ratio, bounds, term);
  const bool differs = token.log_ratio < bounds.low || token.log_ratio > bounds.high;
  term.clipped = differs && token.advantage > 0;
  term.clipped_lower = differs && token.advantage < 0;
  return term;
}

PolicyTerm dro(const PolicyOptions& options, const PolicyInput& token) {
  const double x = token.logp - token.old_logp;
  PolicyTerm term;
  term.value = -(token.logp * token.advantage - options.dro_beta / 2 * x * x);
  term.d_logp = -(token.advantage - options.dro_beta * x);
  return term;
}

bool dppo_valid(const PolicyOptions& options, const PolicyInput& token) {
  const double p = std::exp(token.logp), q = std::exp(token.old_logp);
  if (std::isnan(token.advantage) || std::isnan(p) || std::isnan(q)) return true;  // which the loss is to show
  const bool positive = token.advantage > 0;
  if (options.kind == PolicyKind::dppo_tv) {
    return positive ? p - q <= options.clip_high : p - q >= -options.clip_low;
  }
  const double kl = q * (token.old_logp - token.logp) + (1 - q) * std::log((1 - q + 1e-8) / (1 - p + 1e-8));
  return positive ? kl <= options.clip_high || p <= q : kl <= options.clip_low || p >= q;
}

PolicyTerm dppo(const PolicyOptions& options, const PolicyInput& token) {
  PolicyTerm term;
  if (dppo_valid(options, token)) {
    const double cap = bound_or_none(options.delta);
    term = weighted_logp(token, capped(token.ratio, cap).value);
    term.clipped_lower = token.ratio > cap;
  } else {
    term.clipped = true;
  }
  return term;
}

}  // namespace

PolicyTerm policy_term(const PolicyOptions& options, const PolicyInput& token, const PolicySequenceInput& sequence) {
  switch (options.kind) {
    case PolicyKind::ppo:
      return ppo(options, token);
    case PolicyKind::cispo:
      return cispo(options, token);
    case PolicyKind::sapo:
      return sapo(options, token);
    case PolicyKind::vespo:
      return vespo(options, token, sequence);
    case PolicyKind::gmpo:
      return gmpo(options, token, sequence);
    case PolicyKind::gpg:
      return weighted_logp(token, 1);
    case PolicyKind::dro:
      return dro(options, token);
    case PolicyKind::dppo_tv:
    case PolicyKind::dppo_kl:
      return dppo(options, token);
  }
  return {};
}

Slope geometric_term(const PolicyOptions& options, double advantage, double log_ratio) {
  if (advantage > 0 && log_ratio > options.clip_high) return {options.clip_high, 0};
  if (advantage < 0 && log_ratio < -options.clip_low) return {-options.clip_low, 0};
  return advantage != 0 ? Slope{log_ratio, 1} : Slope{0, 0};
}

KlTerm kl_term(const PolicyOptions& options, double logp, double ref_logp, double ratio) {
  const double difference = ref_logp - logp;
  const double diff_bound = bound_or_none(options.kl_diff_clamp), bound = bound_or_none(options.kl_value_clamp);
  const double d = std::min(std::max(difference, -diff_bound), diff_bound);
  const KlEstimate estimate = kl_estimate(options.kl_kind, d);
  const bool outside = difference > diff_bound || difference < -diff_bound;
  KlTerm term = {estimate.value, outside ? 0 : -estimate.slope, 0};
  if (options.kl_bias_correction) {
    term.value *= ratio;
    term = {term.value, term.d_logp * ratio, term.value};
  }
  if (term.value > bound || term.value < -bound) term.d_logp = term.d_log_ratio = 0;
  term.value = std::min(std::max(term.value, -bound), bound);
  if (options.kl_gradient == KlGradient::k2) term = {term.value, -difference, 0};
  return term;
}

}  // namespace rlk::cpu
