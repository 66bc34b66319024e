// The gradient of logp's outputs with respect to logits and bias: the declaration's formula, element by element, fp64.
#include <rlk/ops/logp_backward.h>

#include <cmath>
#include <limits>

#include "core/golden/golden.hpp"
#include "core/golden/logp_rows.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Element {
  double value = 0, cond = 0;
};

// grad_logits[r, v] for the output row n that owns logits row r.
Element gradient(const LogpBackwardCall& call, int64_t n, int64_t r, int64_t v) {
  const double x = biased_logit(call, r, v);
  if (x == -kInfinity) return {};
  const double z = score(call, r, v);
  const double lse = call.lse.load(n);
  const double log_p = z - lse;
  const double p = std::exp(log_p);
  const double g_logp = call.grad_logp.load(n);
  const double g_lse = call.grad_lse.present() ? call.grad_lse.load(n) : 0.0;
  const double g_entropy = call.grad_entropy.present() ? call.grad_entropy.load(n) : 0.0;
  const double entropy = call.entropy.present() ? call.entropy.load(n) : 0.0;
  const double is_target = v == call.ids.load_int(n) - call.vocab_start ? 1.0 : 0.0;

  double dz = g_logp * (is_target - p) + g_lse * p;
  if (g_entropy != 0) dz -= g_entropy * p * (log_p + entropy);

  double slope = 1 / call.temperature;
  if (call.softcap > 0) {
    const double t = std::tanh(x / call.softcap);
    slope *= 1 - t * t;
  }

  // log p is off by eps (|z| + |lse|), p by that relatively and once more for exp, and p may be flushed to zero; then
  // each product and difference.
  const double log_p_error = std::fabs(z) + std::fabs(lse);
  const double p_error = kTiny + p * (1 + log_p_error);
  const double bracket = std::fabs(log_p + entropy);
  const double dz_cond = std::fabs(g_logp) * (is_target + p_error) + std::fabs(g_lse) * p_error +
                         std::fabs(g_entropy) * (p_error * bracket + p * (log_p_error + std::fabs(entropy)));
  // 1 - t^2 is off by an absolute eps, which matters where the cap saturates.
  const double slope_error = call.softcap > 0 ? 1 / call.temperature : slope;
  return {dz * slope, kTiny + dz_cond * slope + std::fabs(dz) * slope_error};
}

}  // namespace

LogpBackwardResult logp_backward(const LogpBackwardCall& call) {
  const int64_t n_rows = call.ids.shape[0];
  const int64_t logits_rows = call.logits.shape[0];
  const int64_t vocab = call.logits.shape[1];
  const bool whole_vocabulary = call.global_vocab <= 0 || call.global_vocab == vocab;

  LogpBackwardResult result;
  const auto at = [vocab](int64_t r, int64_t v) { return static_cast<size_t>(r * vocab + v); };
  Output& grad = result.grad_logits;
  grad.value.assign(static_cast<size_t>(logits_rows * vocab), 0.0);  // ignored and unlisted rows stay exactly 0
  grad.cond.assign(grad.value.size(), 0.0);

  int64_t previous_row = -1;  // the highest logits row that an active row has named so far
  for (int64_t n = 0; n < n_rows; ++n) {
    if (is_ignored(call, n)) continue;
    const int64_t r = call.row_indices.present() ? call.row_indices.load_int(n) : n;
    const bool row_exists = r >= 0 && r < logits_rows;
    DataError error = row_error(call, n);
    if (error.kind == kNoDataError && r <= previous_row) error = {kRowOutOfRange, n, r};
    bool every_logit_masked = row_exists;
    for (int64_t v = 0; row_exists && v < vocab; ++v) every_logit_masked &= score(call, r, v) == -kInfinity;
    if (error.kind == kNoDataError && every_logit_masked && whole_vocabulary) error = {kNoFiniteLogit, n, 0};

    if (error.kind != kNoDataError) keep_first(result.error, error);
    for (int64_t v = 0; row_exists && v < vocab; ++v) {
      const Element element = error.kind != kNoDataError ? Element{kNan, 0} : gradient(call, n, r, v);
      grad.value[at(r, v)] = element.value;
      grad.cond[at(r, v)] = std::isfinite(element.value) ? element.cond : 0.0;
    }
    if (row_exists && r > previous_row) previous_row = r;
  }

  if (call.want_grad_bias) {
    for (int64_t v = 0; v < vocab; ++v) {
      Sum sum;
      if (result.error.kind != kNoDataError) sum.add(kNan);
      double cond = 0;
      // Each term is off by its own condition, and the sum by an eps of the magnitudes in it.
      for (int64_t r = 0; r < logits_rows; ++r) {
        sum.add(grad.value[at(r, v)]);
        cond += grad.cond[at(r, v)] + std::fabs(grad.value[at(r, v)]);
      }
      result.grad_bias.value.push_back(sum.value());
      result.grad_bias.cond.push_back(std::isfinite(sum.value()) ? cond : 0.0);
    }
  }
  return result;
}

Answer answer_logp_backward(const Call& call) {
  const auto& params = call.params_as<rlk_logp_backward_params>();
  LogpBackwardCall golden;
  golden.logits = call[RLK_LOGP_BACKWARD_IN_LOGITS];
  golden.ids = call[RLK_LOGP_BACKWARD_IN_IDS];
  golden.lse = call[RLK_LOGP_BACKWARD_IN_LSE];
  golden.grad_logp = call[RLK_LOGP_BACKWARD_IN_GRAD_LOGP];
  golden.grad_lse = call[RLK_LOGP_BACKWARD_IN_GRAD_LSE];
  golden.grad_entropy = call[RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY];
  golden.entropy = call[RLK_LOGP_BACKWARD_IN_ENTROPY];
  golden.bias = call[RLK_LOGP_BACKWARD_IN_BIAS];
  golden.mask = call[RLK_LOGP_BACKWARD_IN_MASK];
  golden.row_indices = call[RLK_LOGP_BACKWARD_IN_ROW_INDICES];
  golden.temperature = params.temperature;
  golden.softcap = params.softcap;
  golden.ignore_index = params.ignore_index;
  golden.vocab_start = params.vocab_start;
  golden.global_vocab = params.global_vocab;
  golden.want_grad_bias = call.wants(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS);
  LogpBackwardResult result = logp_backward(golden);
  return {{std::move(result.grad_logits), std::move(result.grad_bias)}, result.error};
}

}  // namespace rlk::golden
