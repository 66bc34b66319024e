// Importance weights and rejection between trainer and sampler.
#include "core/cpu/kernels/policy_corrections.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
namespace {

enum class Estimate { k1, k2, k3 };
enum class Over { sum, mean, max };

double divergence(Estimate estimate, double r) {
  if (estimate == Estimate::k1) return -r;
  return estimate == Estimate::k2 ? r * r / 2 : std::expm1(r) - r;
}

bool is_inside(Estimate estimate, double k, double low, double high) {
  if (estimate == Estimate::k1) return k >= std::log(low) && k <= std::log(high);
  return k <= high;
}

struct SequenceEstimate {
  Estimate estimate;
  Over over;
};
SequenceEstimate parts_of(RejectSequence choice) {
  switch (choice) {
    case RejectSequence::sum_k2:
      return {Estimate::k2, Over::sum};
    case RejectSequence::sum_k3:
      return {Estimate::k3, Over::sum};
    case RejectSequence::mean_k1:
      return {Estimate::k1, Over::mean};
    case RejectSequence::mean_k2:
      return {Estimate::k2, Over::mean};
    case RejectSequence::mean_k3:
      return {Estimate::k3, Over::mean};
    case RejectSequence::max_k2:
      return {Estimate::k2, Over::max};
    case RejectSequence::max_k3:
      return {Estimate::k3, Over::max};
    case RejectSequence::none:
    case RejectSequence::sum_k1:
      break;
  }
  return {Estimate::k1, Over::sum};
}

}  // namespace

double PolicyCorrections::clamped(double r) const {
  return std::min(std::max(r, -bound_), bound_);
}

void PolicyCorrections::add(double r) {
  tokens_ += 1;
  sum_ += r;
  if (options_.reject_sequence == RejectSequence::none) return;
  const double k = divergence(parts_of(options_.reject_sequence).estimate, clamped(r));
  divergence_sum_ += k;
  divergence_max_ = std::max(divergence_max_, k);
}

bool PolicyCorrections::rejects_sequence() const {
  if (options_.reject_sequence == RejectSequence::none || tokens_ == 0) return false;
  const SequenceEstimate parts = parts_of(options_.reject_sequence);
  const double k = parts.over == Over::sum    ? divergence_sum_
                   : parts.over == Over::mean ? divergence_sum_ / tokens_
                                              : divergence_max_;
  return !is_inside(parts.estimate, k, options_.reject_sequence_low, options_.reject_sequence_high);
}

bool PolicyCorrections::rejects_token(double r) const {
  if (options_.reject_token == RejectToken::none) return false;
  const Estimate estimate = options_.reject_token == RejectToken::k1   ? Estimate::k1
                            : options_.reject_token == RejectToken::k2 ? Estimate::k2
                                                                       : Estimate::k3;
  return !is_inside(estimate, divergence(estimate, clamped(r)), options_.reject_token_low, options_.reject_token_high);
}

double PolicyCorrections::weight(double r) const {
  const double low = options_.rollout_is_min, high = options_.rollout_is_max;
  const auto truncated = [&](double w) { return std::min(std::max(w, low), high); };
  const auto kept = [&](double gate, double w) { return gate >= low && gate <= high ? w : 0.0; };
  switch (options_.rollout_is) {
    case RolloutIs::none:
      break;
    case RolloutIs::token_truncate:
      return truncated(std::exp(clamped(r)));
    case RolloutIs::token_mask:
      return kept(std::exp(clamped(r)), std::exp(clamped(r)));
    case RolloutIs::sequence_truncate:
      return truncated(std::exp(clamped(sum_)));
    case RolloutIs::sequence_mask:
      return kept(std::exp(clamped(sum_)), std::exp(clamped(sum_)));
    case RolloutIs::geometric_mask:
      return kept(std::exp(clamped(sum_ / tokens_)), std::exp(clamped(r)));
  }
  return 1;
}

}  // namespace rlk::cpu
