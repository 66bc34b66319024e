// One token of ratio_kl: what its four operators (from log-probabilities or logits, forward and backward) agree on.
#pragma once

#include <rlk/ops/ratio_kl.h>
#include <rlk/ops/ratio_kl_backward.h>

#include <optional>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

struct RatioKlRules {
  int64_t kl_kind;  // RLK_RATIO_KL_KL_KIND_*
  bool weighted;
  double diff_clamp, value_clamp, log_ratio_clamp;
  bool k2_gradient;
};
template <typename Params>
RatioKlRules ratio_kl_rules(const Params& params) {
  bool k2_gradient = false;
  if constexpr (requires { params.kl_gradient; }) {
    k2_gradient = params.kl_gradient == RLK_RATIO_KL_BACKWARD_KL_GRADIENT_K2;
  }
  return {params.kl_kind,         params.kl_weight == RLK_RATIO_KL_KL_WEIGHT_RATIO,
          params.diff_clamp,      params.value_clamp,
          params.log_ratio_clamp, k2_gradient};
}

// Values, and derivatives with respect to logp.
struct TokenRatioKl {
  Tracked ratio, d_ratio;
  Tracked kl, d_kl;
};
TokenRatioKl token_ratio_kl(const RatioKlRules& rules, Tracked logp, std::optional<Tracked> old_logp,
                            std::optional<Tracked> ref_logp);

inline std::optional<Tracked> maybe(const View& view, int64_t n) {
  return view.present() ? std::optional<Tracked>(view.load(n)) : std::nullopt;
}
inline bool is_kept(const View& mask, int64_t n) {
  return !mask.present() || mask.load_int(n) != 0;
}

}  // namespace rlk::golden
