// The gradient of logits_ratio_kl with respect to the policy's logits, element by element, fp64.
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>

#include <cstring>

#include "core/golden/logp_rows.hpp"
#include "core/golden/ratio_kl.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr double kSmallestP = 0x1p-126;  // the smallest normal fp32

}  // namespace

Answer answer_logits_ratio_kl_backward(const Call& call) {
  sdk::ops::logits_ratio_kl_backward::Params params;
  std::memcpy(static_cast<void*>(&params), call.params, sizeof(params));
  LogpCall rows;
  rows.logits = call[RLK_LOGITS_RATIO_KL_BACKWARD_IN_LOGITS];
  rows.ids = call[RLK_LOGITS_RATIO_KL_BACKWARD_IN_IDS];
  rows.mask = call[RLK_LOGITS_RATIO_KL_BACKWARD_IN_MASK];
  rows.ignore_index = params.ignore_index;
  const View& grad_kl = call[RLK_LOGITS_RATIO_KL_BACKWARD_IN_GRAD_KL];
  const int64_t vocab = rows.logits.shape[1];

  Answer answer;
  answer.outputs.resize(RLK_LOGITS_RATIO_KL_BACKWARD_N_OUTPUTS);
  Output& out = answer.outputs[RLK_LOGITS_RATIO_KL_BACKWARD_OUT_GRAD_LOGITS];
  for (int64_t n = 0; n < rows.ids.shape[0]; ++n) {
    const bool ignored = is_ignored(rows, n);
    DataError error;
    if (!ignored) error = row_error(rows, n);
    bool all_masked = true;
    for (int64_t v = 0; v < vocab; ++v) all_masked &= rows.logits.load(n, v) == -kInfinity;
    if (!ignored && error.kind == kNoDataError && all_masked) error = {kNoFiniteLogit, n, 0};
    if (error.kind != kNoDataError) keep_first(answer.error, error);
    if (ignored || error.kind != kNoDataError) {
      for (int64_t v = 0; v < vocab; ++v) put(out, ignored ? 0.0 : kNan);
      continue;
    }
    const int64_t target = rows.ids.load_int(n);
    const Tracked lse = call[RLK_LOGITS_RATIO_KL_BACKWARD_IN_LSE].load(n);
    const auto score = [&](int64_t v) { return Tracked(rows.logits.load(n, v)) / Tracked(params.temperature); };
    const TokenRatioKl token =
        token_ratio_kl(params, score(target) - lse, maybe(call[RLK_LOGITS_RATIO_KL_BACKWARD_IN_OLD_LOGP], n),
                       maybe(call[RLK_LOGITS_RATIO_KL_BACKWARD_IN_REF_LOGP], n));
    Tracked gradient = Tracked(call[RLK_LOGITS_RATIO_KL_BACKWARD_IN_GRAD_RATIO].load(n)) * token.d_ratio;
    if (grad_kl.present()) gradient = gradient + Tracked(grad_kl.load(n)) * token.d_kl;
    for (int64_t v = 0; v < vocab; ++v) {
      if (rows.logits.load(n, v) == -kInfinity) {
        put(out, 0.0);
        continue;
      }
      const Tracked p = exp(score(v) - lse);
      put(out, gradient * (v == target ? Tracked(1.0) - p : -p) / Tracked(params.temperature));
      // An infinite gradient times a p that may be flushed to zero: infinity or NaN.
      if (std::isinf(gradient.value) && v != target && p.value < kSmallestP) out.cond.back() = kInfinity;
    }
  }
  return answer;
}

}  // namespace rlk::golden
