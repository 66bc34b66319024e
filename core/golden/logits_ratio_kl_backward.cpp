// The gradient of logits_ratio_kl with respect to the policy's logits, element by element, fp64.
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>

#include "core/golden/factors.hpp"
#include "core/golden/logp_rows.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/ratio_kl.hpp"

namespace rlk::golden {
namespace {

constexpr double kSmallestP = 0x1p-126;  // the smallest normal fp32

}  // namespace

DataError logits_ratio_kl_backward(CallOf<sdk::ops::LogitsRatioKlBackward>& call) {
  DataError first;
  Output& out = call.grad_logits;
  for (int64_t n = 0; n < call.N; ++n) {
    const bool ignored = is_ignored(call, n);
    DataError error;
    if (!ignored) error = row_error(call, n);
    bool all_masked = true;
    for (int64_t v = 0; v < call.V; ++v) all_masked &= call.logits.load(n, v) == -kInfinity;
    if (!ignored && error.kind == kNoDataError && all_masked) error = {kNoFiniteLogit, n, 0};
    keep_first(first, error);
    if (ignored || error.kind != kNoDataError) {
      for (int64_t v = 0; v < call.V; ++v) put(out, ignored ? 0.0 : kNan);
      continue;
    }
    const int64_t target = call.ids.load_int(n);
    const Tracked lse = call.lse.load(n);
    const auto score = [&](int64_t v) {  // the logit itself, or rounded
      const Tracked logit = call.logits.load(n, v);
      return call.params.temperature == 1 ? logit : logit / Tracked(call.params.temperature);
    };
    const bool is_vague_row = is_vague(score(target).error, call.epsilon);
    const TokenRatioKl token =
        token_ratio_kl(call.params, score(target) - lse, maybe(call.old_logp, n), maybe(call.ref_logp, n));
    Tracked gradient = weighted(call.grad_ratio.load(n), token.d_ratio);
    if (call.grad_kl.present()) gradient = gradient + weighted(call.grad_kl.load(n), token.d_kl);
    for (int64_t v = 0; v < call.V; ++v) {
      if (call.logits.load(n, v) == -kInfinity) {
        put(out, 0.0);
        continue;
      }
      const Tracked p = exp(score(v) - lse);
      put(out, gradient * (v == target ? Tracked(1.0) - p : -p) / Tracked(call.params.temperature));
      // An infinite gradient times a p that may be flushed to zero: infinity or NaN.
      const bool is_flushed = std::isinf(gradient.value) && v != target && p.value < kSmallestP;
      if (is_flushed || is_vague_row || is_vague(score(v).error, call.epsilon)) out.cond.back() = kInfinity;
    }
  }
  return first;
}

}  // namespace rlk::golden
