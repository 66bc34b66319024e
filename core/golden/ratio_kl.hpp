// One token of ratio_kl: what its four operators (from log-probabilities or logits, forward and backward) agree on.
#pragma once

#include <rlk/sdk/ops/ratio_kl.hpp>

#include "core/golden/optional.hpp"

namespace rlk::golden {

// F(d) of a kind of estimate.
Tracked kl_estimate(sdk::ops::ratio_kl::KlKind kind, Tracked d);

// Values, and derivatives with respect to logp.
struct TokenRatioKl {
  Tracked ratio, d_ratio;
  Tracked kl, d_kl;
};
template <class Params>
TokenRatioKl token_ratio_kl(const Params& params, Tracked logp, std::optional<Tracked> old_logp,
                            std::optional<Tracked> ref_logp);

}  // namespace rlk::golden
