// logp: one row at a time, its scores in the workspace.
#include "logp_rows.hpp"

namespace golden_plugin {
namespace {

struct RowResult {
  double logp, lse, entropy;
};

RowResult row_result(const double* z, int64_t vocab, int64_t target) {
  double max = -kInfinity;
  for (int64_t v = 0; v < vocab; ++v) max = z[v] > max ? z[v] : max;
  Sum sum, mean;  // of exp(z - max), and of z - max under it
  for (int64_t v = 0; v < vocab; ++v) {
    const double weight = std::exp(z[v] - max);
    sum.add(weight);
    if (z[v] != -kInfinity) mean.add(weight * (z[v] - max));
  }
  const double log_sum = std::log(sum.value());
  const double lse = max + log_sum;
  const bool here = target >= 0 && target < vocab;
  // The maximum before the logarithm: lse has lost its last digits where scores are large.
  return {here ? (z[target] - max) - log_sum : -kInfinity, lse, log_sum - mean.value() / sum.value()};
}

}  // namespace

void compute(const rlk_logp_params& params, const Run& run) {
  const Rows<rlk_logp_params> rows{params,
                                   run.input(RLK_LOGP_IN_LOGITS),
                                   run.input(RLK_LOGP_IN_IDS),
                                   run.input(RLK_LOGP_IN_BIAS),
                                   run.input(RLK_LOGP_IN_MASK),
                                   run.input(RLK_LOGP_IN_ROW_INDICES)};
  const Elements logp = run.output(RLK_LOGP_OUT_LOGP);
  const Elements lse = run.output(RLK_LOGP_OUT_LSE);
  const Elements entropy = run.output(RLK_LOGP_OUT_ENTROPY);
  const auto write = [&](int64_t n, const RowResult& row) {
    logp.set(row.logp, n);
    if (lse) lse.set(row.lse, n);
    if (entropy) entropy.set(row.entropy, n);
  };
  const auto fail = [&](int32_t kind, int64_t n, int64_t value) {
    report(run, kind, n, value);
    write(n, {kNan, kNan, kNan});
  };

  auto* z = static_cast<double*>(run.workspace());
  const int64_t vocab = rows.vocab();
  for (int64_t n = 0; n < rows.count(); ++n) {
    if (rows.ignored(n)) {
      write(n, {0, 0, 0});
    } else if (!rows.id_in_range(n)) {
      fail(RLK_DATA_ID_OUT_OF_RANGE, n, rows.ids.integer(n));
    } else if (!rows.has_logits_row(n)) {
      fail(RLK_DATA_ROW_OUT_OF_RANGE, n, rows.logits_row(n));
    } else {
      bool all_masked = true;
      for (int64_t v = 0; v < vocab; ++v) {
        z[v] = rows.score(rows.logits_row(n), v);
        all_masked = all_masked && z[v] == -kInfinity;
      }
      if (!all_masked) {
        write(n, row_result(z, vocab, rows.target(n)));
      } else if (rows.global_vocab() == vocab) {
        fail(RLK_DATA_NO_FINITE_LOGIT, n, 0);
      } else {
        write(n, {-kInfinity, -kInfinity, 0});
      }
    }
  }
}

}  // namespace golden_plugin
