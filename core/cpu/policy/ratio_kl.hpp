// One token of the importance ratio and the KL estimate, and their slopes, in fp64: what ratio_kl and logits_ratio_kl
// agree on, forward and backward.
#pragma once

#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>

#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

using sdk::ops::ratio_kl::KlKind;

struct KlEstimate {
  double value, slope;  // F(d), F'(d)
};
// Of d = ref_logp - logp, here and in policy_loss.
KlEstimate kl_estimate(KlKind kind, double d);

// Of the gradient of k2 in kl_gradient k2_weighted.
double k2_weight(double logp, double old_logp, double largest);

struct TokenRatioKl {
  double ratio, ratio_slope;  // slopes: derivatives with respect to logp
  double kl, kl_slope;
};
// Of token n, with the parameters of any of the four operators. old_logp and ref_logp may be absent: without ref_logp
// kl and its slope are 0.
template <class Params>
TokenRatioKl token_ratio_kl(const Params& params, double logp, const Array& old_logp, const Array& ref_logp, int64_t n);

}  // namespace rlk::cpu
