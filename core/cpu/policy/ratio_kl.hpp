// Importance ratio and per-token KL estimate from log-probabilities, and the gradient. One number per token, in fp64.
#pragma once

#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

enum class KlKind : int64_t { k1, abs, k2, k3 };

struct KlEstimate {
  double value, slope;  // F(d), F'(d)
};
// Of d = ref_logp - logp, here and in policy_loss.
KlEstimate kl_estimate(KlKind kind, double d);

struct RatioKlOptions {
  KlKind kl_kind = KlKind::k3;
  bool weighted = false;                                        // kl times the unclamped importance ratio
  double diff_clamp = 0, value_clamp = 0, log_ratio_clamp = 0;  // 0: off
  bool k2_gradient = false;                                     // straight-through: the slope of k2, unclamped
};

struct TokenRatioKl {
  double ratio, ratio_slope;  // slopes: derivatives with respect to logp
  double kl, kl_slope;
};
// nullptr: without. kl and its slope are 0 without ref_logp.
TokenRatioKl token_ratio_kl(const RatioKlOptions& options, double logp, const double* old_logp, const double* ref_logp);
// The same of token n of whole arrays.
TokenRatioKl token_ratio_kl(const RatioKlOptions& options, double logp, const Array& old_logp, const Array& ref_logp,
                            int64_t n);

struct RatioKlArgs {
  int64_t n = 0;
  Array logp;
  Array old_logp, ref_logp;  // optional
  Mask mask;                 // optional
  RatioKlOptions options;
  double masked_ratio = 1;
  Array ratio;
  Array kl;  // optional, with ref_logp
};
void ratio_kl(const RatioKlArgs& args, const ParallelFor& hook);

struct RatioKlBackwardArgs {
  int64_t n = 0;
  Array logp;
  Array grad_ratio;
  Array grad_kl;             // optional, with ref_logp
  Array old_logp, ref_logp;  // optional
  Mask mask;                 // optional
  RatioKlOptions options;
  Array grad_logp;
};
void ratio_kl_backward(const RatioKlBackwardArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
