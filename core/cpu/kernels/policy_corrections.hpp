// Corrections for the difference between the trainer's and the sampler's log-probabilities: importance weights, and
// which tokens and sequences are rejected. Nothing here has a gradient.
#pragma once

#include "core/cpu/kernels/policy_options.hpp"

namespace rlk::cpu {

// Built over the unmasked tokens of a sequence, one add() each, then asked about each of them. r is lo - rollout_logp.
class PolicyCorrections {
public:
  explicit PolicyCorrections(const PolicyOptions& options)
      : options_(options), bound_(bound_or_none(options.rollout_log_clamp)) {}

  void add(double r);
  bool rejects_sequence() const;
  bool rejects_token(double r) const;
  double weight(double r) const;

private:
  double clamped(double r) const;

  const PolicyOptions& options_;
  double bound_;
  double tokens_ = 0, sum_ = 0;
  double divergence_sum_ = 0, divergence_max_ = -std::numeric_limits<double>::infinity();
};

}  // namespace rlk::cpu
