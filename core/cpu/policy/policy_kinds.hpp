// The policy loss and the KL of one token with their derivatives. A new kind of loss is a function in policy_kinds.cpp
// and a line in its switch.
#pragma once

#include <rlk/sdk/ops/policy_loss.hpp>

#include "core/cpu/policy/clamp_gradient.hpp"

namespace rlk::cpu {

// Of the forward; its backward and grpo_loss fill them in.
using PolicyParams = sdk::ops::policy_loss::Params;

// What a kind looks at. log_ratio is clamped and of the token or of its sequence, as importance_ratio says.
struct PolicyInput {
  double logp, old_logp, advantage;
  double log_ratio, ratio;
  double at_bound = 0;  // what clamps pass of the gradient at their bounds
  bool taken = false;   // by covariance: clip_cov, kl_cov
};

// What vespo and gmpo take from the whole sequence.
struct PolicySequenceInput {
  double log_weight = 0;  // vespo: u
  double geometric = 0;   // gmpo: -(sum A / n) exp(sum L / n)
};

struct PolicyTerm {
  double value = 0;
  double d_logp = 0;       // explicitly
  double d_log_ratio = 0;  // through the importance ratio
  double d_sequence = 0;   // gmpo: through sum L / n
  double phi = 0;
  bool clipped = false, clipped_lower = false, below = false, above = false;
};
// Whether ppo takes the clipped term.
bool is_clipped(const PolicyParams& params, const PolicyInput& token);
PolicyTerm policy_term(const PolicyParams& params, const PolicyInput& token, const PolicySequenceInput& sequence);

struct KlTerm {
  double value = 0, d_logp = 0, d_log_ratio = 0;
};
// old_logp weighs the gradient of k2_weighted; ratio is that of kl_bias_correction.
KlTerm kl_term(const PolicyParams& params, double logp, double old_logp, double ref_logp, double ratio,
               double at_bound = 0);

// gmpo: the clipped log ratio of a token, and its derivative.
struct Slope {
  double value, slope;
};
Slope geometric_term(const PolicyParams& params, double advantage, double log_ratio, double at_bound);

}  // namespace rlk::cpu
