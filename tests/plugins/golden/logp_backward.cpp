// logp_backward: rows of logits in increasing order, so that grad_logits may be the memory of logits.
#include <algorithm>

#include "logp_rows.hpp"

namespace golden_plugin {

void compute(const rlk_logp_backward_params& params, const Run& run) {
  const Rows<rlk_logp_backward_params> rows{params,
                                            run.input(RLK_LOGP_BACKWARD_IN_LOGITS),
                                            run.input(RLK_LOGP_BACKWARD_IN_IDS),
                                            run.input(RLK_LOGP_BACKWARD_IN_BIAS),
                                            run.input(RLK_LOGP_BACKWARD_IN_MASK),
                                            run.input(RLK_LOGP_BACKWARD_IN_ROW_INDICES)};
  const Elements lse = run.input(RLK_LOGP_BACKWARD_IN_LSE);
  const Elements grad_logp = run.input(RLK_LOGP_BACKWARD_IN_GRAD_LOGP);
  const Elements grad_lse = run.input(RLK_LOGP_BACKWARD_IN_GRAD_LSE);
  const Elements grad_entropy = run.input(RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY);
  const Elements entropy = run.input(RLK_LOGP_BACKWARD_IN_ENTROPY);
  const Elements grad_logits = run.output(RLK_LOGP_BACKWARD_OUT_GRAD_LOGITS);
  const Elements grad_bias = run.output(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS);
  const int64_t vocab = rows.vocab();
  auto* bias_sum = static_cast<double*>(run.workspace());
  if (grad_bias) std::fill(bias_sum, bias_sum + vocab, 0.0);

  const auto fill_row = [&](int64_t r, double value) {
    for (int64_t v = 0; v < vocab; ++v) grad_logits.set(value, r, v);
  };
  const auto gradient = [&](int64_t n, int64_t r, int64_t v) {
    const double x = rows.biased_logit(r, v);
    if (x == -kInfinity) return 0.0;
    const double log_p = rows.score(r, v) - lse.real(n);
    const double p = std::exp(log_p);
    double dz = grad_logp.real(n) * ((v == rows.target(n) ? 1.0 : 0.0) - p);
    if (grad_lse) dz += grad_lse.real(n) * p;
    if (grad_entropy && grad_entropy.real(n) != 0) dz -= grad_entropy.real(n) * p * (log_p + entropy.real(n));
    const double t = params.softcap > 0 ? std::tanh(x / params.softcap) : 0.0;
    return dz * (1 - t * t) / params.temperature;
  };

  bool failed = false;
  int64_t next_row = 0;  // rows of logits below have their gradient
  for (int64_t n = 0; n < rows.count(); ++n) {
    if (rows.ignored(n)) continue;
    const int64_t r = rows.logits_row(n);
    const auto fail = [&](int32_t kind, int64_t value) {
      report(run, kind, n, value);
      failed = true;
    };
    if (!rows.id_in_range(n)) {
      fail(RLK_DATA_ID_OUT_OF_RANGE, rows.ids.integer(n));
    } else if (!rows.has_logits_row(n) || r < next_row) {
      fail(RLK_DATA_ROW_OUT_OF_RANGE, r);
    }
    if (!rows.has_logits_row(n)) continue;
    if (r < next_row) {  // its logits may be gone already
      fill_row(r, kNan);
      continue;
    }
    for (; next_row < r; ++next_row) fill_row(next_row, 0.0);
    next_row = r + 1;
    bool all_masked = rows.global_vocab() == vocab;
    for (int64_t v = 0; all_masked && v < vocab; ++v) all_masked = rows.score(r, v) == -kInfinity;
    if (all_masked && rows.id_in_range(n)) fail(RLK_DATA_NO_FINITE_LOGIT, 0);
    if (all_masked || !rows.id_in_range(n)) {
      fill_row(r, kNan);
      continue;
    }
    for (int64_t v = 0; v < vocab; ++v) {
      const double value = gradient(n, r, v);
      grad_logits.set(value, r, v);
      if (grad_bias) bias_sum[v] += value;
    }
  }
  for (; next_row < rows.logits_count(); ++next_row) fill_row(next_row, 0.0);
  for (int64_t v = 0; grad_bias && v < vocab; ++v) grad_bias.set(failed ? kNan : bias_sum[v], v);
}

}  // namespace golden_plugin
