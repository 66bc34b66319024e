// Log-probabilities of both models, one after the other, then one number per token.
#include "core/cpu/policy/logits_ratio_kl.hpp"

#include "core/cpu/logp/logp_block.hpp"

namespace rlk::cpu {
namespace {

constexpr int64_t kDouble = sizeof(double);

// Log-probabilities in the workspace, not yet rounded to the outputs' dtype.
Array doubles(double* at) {
  return Array::of(at);
}

}  // namespace

int64_t logits_ratio_kl_workspace_bytes(int64_t n, int64_t vocab) {
  return 2 * n * kDouble + logp_workspace_bytes(n, vocab);
}

DataError logits_ratio_kl(const LogitsRatioKlArgs& args, const ParallelFor& hook) {
  const int64_t n_rows = args.rows.n;
  auto* logps = static_cast<double*>(args.workspace);
  const Array policy_logp = doubles(logps), ref_logp = args.has_reference ? doubles(logps + n_rows) : Array();

  LogpArgs of_policy;
  of_policy.rows = args.rows;
  of_policy.dtype = args.dtype;
  of_policy.logits = args.logits;
  of_policy.row_stride = args.policy_row_stride;
  of_policy.col_stride = args.policy_col_stride;
  of_policy.logp = policy_logp.data;
  of_policy.logp_dtype = Dtype::f64;
  of_policy.lse = args.lse.data;
  of_policy.lse_stride = args.lse.strides[0];
  of_policy.temperature = args.params.temperature;
  of_policy.workspace = logps + 2 * n_rows;
  DataError error = logp(of_policy, hook);
  if (args.has_reference) {
    LogpArgs of_reference = of_policy;
    of_reference.logits = args.ref_logits;
    of_reference.row_stride = args.ref_row_stride;
    of_reference.col_stride = args.ref_col_stride;
    of_reference.logp = ref_logp.data;
    of_reference.lse = nullptr;
    const DataError other = logp(of_reference, hook);
    if (error.kind == kNoDataError || (other.kind != kNoDataError && other.row < error.row)) error = other;
  }

  parallel_for(hook, n_rows, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      TokenRatioKl token{args.params.masked_ratio, 0, 0, 0};
      const double own = policy_logp.get(n);
      if (!args.rows.ignored(n)) token = token_ratio_kl(args.params, own, args.old_logp, ref_logp, n);
      args.ratio.put(n, token.ratio);
      if (args.kl.present()) args.kl.put(n, token.kl);
      if (args.logp.present()) args.logp.put(n, own);
      if (args.ref_logp.present()) args.ref_logp.put(n, ref_logp.get(n));
    }
  });
  return error;
}

int64_t logits_ratio_kl_backward_workspace_bytes(int64_t n) {
  return n * kDouble + logp_backward_workspace_bytes(n, false);
}

DataError logits_ratio_kl_backward(const LogitsRatioKlBackwardArgs& args, const ParallelFor& hook) {
  auto* grad_logp = static_cast<double*>(args.workspace);
  const Scores scores = make_scores(args.dtype, args.params.temperature, 0, args.col_stride, nullptr, 0);
  parallel_for(hook, args.rows.n, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      grad_logp[n] = 0;
      if (args.rows.ignored(n) || args.rows.error(n).kind != kNoDataError) continue;
      const void* row = element(args.logits, n * args.row_stride, args.dtype);
      const double own = score_of(scores, row, args.rows.id(n)) - args.lse.get(n);
      const TokenRatioKl token = token_ratio_kl(args.params, own, args.old_logp, args.ref_logp, n);
      grad_logp[n] = args.grad_ratio.get(n) * token.ratio_slope;
      if (args.grad_kl.present()) grad_logp[n] += args.grad_kl.get(n) * token.kl_slope;
    }
  });

  LogpBackwardArgs of_logp;
  of_logp.rows = args.rows;
  of_logp.dtype = args.dtype;
  of_logp.logits = args.logits;
  of_logp.row_stride = args.row_stride;
  of_logp.col_stride = args.col_stride;
  of_logp.lse = args.lse.data;
  of_logp.lse_stride = args.lse.strides[0];
  of_logp.grad_logp = grad_logp;
  of_logp.grad_logp_dtype = Dtype::f64;
  of_logp.grad_logits = args.grad_logits;
  of_logp.grad_row_stride = args.grad_row_stride;
  of_logp.grad_col_stride = args.grad_col_stride;
  of_logp.temperature = args.params.temperature;
  of_logp.workspace = grad_logp + args.rows.n;
  return logp_backward(of_logp, hook);
}

}  // namespace rlk::cpu
