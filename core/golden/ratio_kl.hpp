// One token of ratio_kl: what its four operators (from log-probabilities or logits, forward and backward) agree on.
#pragma once

#include <rlk/sdk/ops/ratio_kl.hpp>

#include <optional>

#include "core/golden/tracked.hpp"

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

inline std::optional<Tracked> maybe(const View& view, int64_t n) {
  return view.present() ? std::optional<Tracked>(view.load(n)) : std::nullopt;
}
inline bool is_kept(const View& mask, int64_t n) {
  return !mask.present() || mask.load_int(n) != 0;
}

}  // namespace rlk::golden
