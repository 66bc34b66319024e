// Importance weights and rejection between trainer and sampler.
#include "core/cpu/policy/policy_corrections.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

bool is_kept(const RejectionBounds& bounds, const PolicyCorrections::Estimates& k) {
  if (bounds.k1_low > 0 && !(k.k1 >= std::log(bounds.k1_low))) return false;
  if (bounds.k1_high > 0 && !(k.k1 <= std::log(bounds.k1_high))) return false;
  if (bounds.k2_high > 0 && !(k.k2 <= bounds.k2_high)) return false;
  return !(bounds.k3_high > 0) || k.k3 <= bounds.k3_high;
}

// A NaN stays the largest, so that it passes no test.
double larger(double a, double b) {
  return a >= b || std::isnan(a) ? a : b;
}

}  // namespace

double PolicyCorrections::clamped(double r) const {
  return std::min(std::max(r, -bound_), bound_);
}

PolicyCorrections::PolicyCorrections(const PolicyParams& params)
    : params_(params),
      bound_(bound_or_none(params.rollout_log_clamp)),
      token_{params.reject_token_k1_low, params.reject_token_k1_high, params.reject_token_k2_high,
             params.reject_token_k3_high},
      sequence_sum_{params.reject_sequence_sum_k1_low, params.reject_sequence_sum_k1_high,
                    params.reject_sequence_sum_k2_high, params.reject_sequence_sum_k3_high},
      sequence_mean_{params.reject_sequence_mean_k1_low, params.reject_sequence_mean_k1_high,
                     params.reject_sequence_mean_k2_high, params.reject_sequence_mean_k3_high},
      sequence_max_{0, 0, params.reject_sequence_max_k2_high, params.reject_sequence_max_k3_high},
      rejects_tokens_(token_.any()),
      rejects_sequences_(sequence_sum_.any() || sequence_mean_.any() || sequence_max_.any()) {}

PolicyCorrections::Estimates PolicyCorrections::estimates(double r) const {
  const double c = clamped(r);
  return {-c, c * c / 2, std::expm1(c) - c};
}

PolicyCorrections::Token PolicyCorrections::token(double trained, double sampled) const {
  if (params_.rollout_missing == RolloutMissing::one && std::isnan(sampled)) return {0, 0};
  const double r = trained - sampled;
  if (params_.rollout_gate == RolloutGate::ratio) return {r, 0};
  const auto probability = [](double logp) { return std::min(std::max(std::exp(logp), 1e-6), 1 - 1e-6); };
  const double p = probability(sampled), q = probability(trained);
  if (params_.rollout_gate == RolloutGate::tv) return {r, std::fabs(p - q)};
  return {r, p * std::log(p / q) + (1 - p) * std::log((1 - p) / (1 - q))};
}

void PolicyCorrections::add(const Token& token) {
  tokens_ += 1;
  sum_ += token.r;
  divergence_ += token.divergence;
  if (!rejects_sequences_) return;
  const Estimates k = estimates(token.r);
  total_ = {total_.k1 + k.k1, total_.k2 + k.k2, total_.k3 + k.k3};
  largest_ = {0, larger(largest_.k2, k.k2), larger(largest_.k3, k.k3)};
}

bool PolicyCorrections::rejects_sequence() const {
  if (!rejects_sequences_ || tokens_ == 0) return false;
  const Estimates mean = {total_.k1 / tokens_, total_.k2 / tokens_, total_.k3 / tokens_};
  return !is_kept(sequence_sum_, total_) || !is_kept(sequence_mean_, mean) || !is_kept(sequence_max_, largest_);
}

bool PolicyCorrections::rejects_token(double r) const {
  return rejects_tokens_ && !is_kept(token_, estimates(r));
}

double PolicyCorrections::weight(const Token& token) const {
  const double r = token.r;
  const bool by_ratio = params_.rollout_gate == RolloutGate::ratio;
  const double low = params_.rollout_is_min, high = params_.rollout_is_max;
  const auto truncated = [&](double w) { return std::min(std::max(w, low), high); };
  const auto kept = [&](double gate, double w) { return gate >= low && gate <= high ? w : 0.0; };
  switch (params_.rollout_is) {
    case RolloutIs::none:
      break;
    case RolloutIs::token_truncate:
      return truncated(std::exp(clamped(r)));
    case RolloutIs::token_mask:
      return kept(by_ratio ? std::exp(clamped(r)) : token.divergence, std::exp(clamped(r)));
    case RolloutIs::sequence_truncate:
      return truncated(std::exp(clamped(sum_)));
    case RolloutIs::sequence_mask:
      return kept(std::exp(clamped(sum_)), std::exp(clamped(sum_)));
    case RolloutIs::geometric_mask:
      return kept(by_ratio ? std::exp(clamped(sum_ / tokens_)) : divergence_ / tokens_, std::exp(clamped(r)));
  }
  return 1;
}

}  // namespace rlk::cpu
