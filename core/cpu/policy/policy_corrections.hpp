// Corrections for the difference between the trainer's and the sampler's log-probabilities: importance weights, and
// which tokens and sequences are rejected. Nothing here has a gradient.
#pragma once

#include "core/cpu/policy/policy_options.hpp"

namespace rlk::cpu {

// Built over the unmasked tokens of a sequence, one add() each, then asked about each of them. r is the log ratio of
// the old or the current policy to the sampler.
class PolicyCorrections {
public:
  struct Estimates {
    double k1 = 0, k2 = 0, k3 = 0;
  };

  explicit PolicyCorrections(const PolicyOptions& options);

  void add(double r);
  bool rejects_sequence() const;
  bool rejects_token(double r) const;
  double weight(double r) const;

private:
  double clamped(double r) const;
  Estimates estimates(double r) const;

  const PolicyOptions& options_;
  double bound_;
  bool rejects_tokens_, rejects_sequences_;
  double tokens_ = 0, sum_ = 0;
  Estimates total_, largest_;
};

}  // namespace rlk::cpu
