// Corrections for the difference between the trainer's and the sampler's log-probabilities: importance weights, and
// which tokens and sequences are rejected. Nothing here has a gradient.
#pragma once

#include "core/cpu/policy/policy_kinds.hpp"

namespace rlk::cpu {

// What a token or a sequence must pass to stay in the mask, of the estimates k1, k2 and k3 between trainer and sampler.
struct RejectionBounds {
  double k1_low, k1_high, k2_high, k3_high;  // 0: off; those of k1 bound exp(k1)

  bool any() const { return k1_low > 0 || k1_high > 0 || k2_high > 0 || k3_high > 0; }
};

// Built over the unmasked tokens of a sequence, one add() each, then asked about each of them.
class PolicyCorrections {
public:
  struct Token {
    double r;           // the log ratio of the old or the current policy to the sampler
    double divergence;  // of rollout_gate, between the probabilities; 0 where the ratio itself is the gate
  };
  struct Estimates {
    double k1 = 0, k2 = 0, k3 = 0;
  };

  explicit PolicyCorrections(const PolicyParams& params);

  Token token(double trained, double sampled) const;  // of two log-probabilities
  void add(const Token& token);
  bool rejects_sequence() const;
  bool rejects_token(double r) const;
  double weight(const Token& token) const;

private:
  double clamped(double r) const;
  Estimates estimates(double r) const;

  const PolicyParams& params_;
  double bound_;
  RejectionBounds token_, sequence_sum_, sequence_mean_, sequence_max_;  // the maximum has no k1
  bool rejects_tokens_, rejects_sequences_;
  double tokens_ = 0, sum_ = 0, divergence_ = 0;
  Estimates total_, largest_;
};

}  // namespace rlk::cpu
