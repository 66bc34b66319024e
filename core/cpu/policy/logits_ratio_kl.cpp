// Importance ratio and KL estimate from logits, and the gradient of the policy's logits: the kernels of logp, and
// ratio_kl between them.
//
// Cost model: the logits of each model are read once, one model after the other; the backward reads the policy's once
// more and writes its gradient. Beyond that, some numbers per token in the workspace: log-probabilities are not rounded
// to the outputs' dtype before they are used.
#include <rlk/sdk/ops/logits_ratio_kl.hpp>
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>

#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/logp/logp_block.hpp"
#include "core/cpu/policy/ratio_kl.hpp"
#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::LogitsRatioKl>;
using Backward = CallOf<sdk::ops::LogitsRatioKlBackward>;

constexpr int64_t kDouble = sizeof(double);

template <class Call>
LogpRows rows_of(const Call& call) {
  LogpRows rows;
  rows.n = rows.logits_rows = call.N;
  rows.vocab = call.V;
  rows.ids = call.ids.data;
  rows.ids_are_i64 = call.ids.dtype == Dtype::i64;
  rows.ids_stride = call.ids.strides[0];
  rows.mask = call.mask.template as<const uint8_t>();
  rows.mask_stride = call.mask.strides[0];
  rows.ignore_index = call.params.ignore_index;
  return rows;
}

int64_t forward_workspace(const Forward& call) {
  return 2 * call.N * kDouble + logp_workspace_bytes(call.N, call.V);
}

// Of the lowest bad row of either model.
DataError logits_ratio_kl(const Forward& call, const Context& context) {
  const LogpRows rows = rows_of(call);
  const bool has_reference = call.ref_logits.present();
  auto* logps = static_cast<double*>(context.workspace);
  const Array policy_logp = Array::of(logps), ref_logp = has_reference ? Array::of(logps + call.N) : Array();

  LogpArgs of_policy;
  of_policy.rows = rows;
  of_policy.dtype = call.logits.dtype;
  of_policy.logits = call.logits.data;
  of_policy.row_stride = call.logits.strides[0];
  of_policy.col_stride = call.logits.strides[1];
  of_policy.logp = policy_logp.data;
  of_policy.logp_dtype = Dtype::f64;
  of_policy.lse = call.lse.data;
  of_policy.lse_stride = call.lse.strides[0];
  of_policy.temperature = call.params.temperature;
  of_policy.workspace = logps + 2 * call.N;
  DataError error = logp(of_policy, context.parallel);
  if (has_reference) {
    LogpArgs of_reference = of_policy;
    of_reference.logits = call.ref_logits.data;
    of_reference.row_stride = call.ref_logits.strides[0];
    of_reference.col_stride = call.ref_logits.strides[1];
    of_reference.logp = ref_logp.data;
    of_reference.lse = nullptr;
    const DataError other = logp(of_reference, context.parallel);
    if (error.kind == kNoDataError || (other.kind != kNoDataError && other.row < error.row)) error = other;
  }

  parallel_for(context.parallel, call.N, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      TokenRatioKl token{call.params.masked_ratio, 0, 0, 0};
      const double own = policy_logp.get(n);
      if (!rows.ignored(n)) token = token_ratio_kl(call.params, own, call.old_logp, ref_logp, n);
      call.ratio.put(n, token.ratio);
      if (call.kl.present()) call.kl.put(n, token.kl);
      if (call.logp.present()) call.logp.put(n, own);
      if (call.ref_logp.present()) call.ref_logp.put(n, ref_logp.get(n));
    }
  });
  return error;
}

int64_t backward_workspace(const Backward& call) {
  return call.N * kDouble + logp_backward_workspace_bytes(call.N, false);
}

DataError logits_ratio_kl_backward(const Backward& call, const Context& context) {
  const LogpRows rows = rows_of(call);
  const Array& logits = call.logits;
  auto* grad_logp = static_cast<double*>(context.workspace);
  const Scores scores = make_scores(logits.dtype, call.params.temperature, 0, logits.strides[1], nullptr, 0);
  parallel_for(context.parallel, call.N, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      grad_logp[n] = 0;
      if (rows.ignored(n) || rows.error(n).kind != kNoDataError) continue;
      const void* row = element(logits.data, n * logits.strides[0], logits.dtype);
      const double own = score_of(scores, row, rows.id(n)) - call.lse.get(n);
      const TokenRatioKl token = token_ratio_kl(call.params, own, call.old_logp, call.ref_logp, n);
      grad_logp[n] = call.grad_ratio.get(n) * token.ratio_slope;
      if (call.grad_kl.present()) grad_logp[n] += call.grad_kl.get(n) * token.kl_slope;
    }
  });

  LogpBackwardArgs of_logp;
  of_logp.rows = rows;
  of_logp.dtype = logits.dtype;
  of_logp.logits = logits.data;
  of_logp.row_stride = logits.strides[0];
  of_logp.col_stride = logits.strides[1];
  of_logp.lse = call.lse.data;
  of_logp.lse_stride = call.lse.strides[0];
  of_logp.grad_logp = grad_logp;
  of_logp.grad_logp_dtype = Dtype::f64;
  of_logp.grad_logits = call.grad_logits.data;
  of_logp.grad_row_stride = call.grad_logits.strides[0];
  of_logp.grad_col_stride = call.grad_logits.strides[1];
  of_logp.temperature = call.params.temperature;
  of_logp.workspace = grad_logp + call.N;
  return logp_backward(of_logp, context.parallel);
}

double forward_operations(const Forward& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.V) * 40;
}
double backward_operations(const Backward& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.V) * 25;
}

}  // namespace

RLK_CPU_KERNEL(LogitsRatioKl, .run = logits_ratio_kl, .operations = forward_operations,
               .workspace_bytes = forward_workspace);
RLK_CPU_KERNEL(LogitsRatioKlBackward, .run = logits_ratio_kl_backward, .operations = backward_operations,
               .workspace_bytes = backward_workspace);

}  // namespace rlk::cpu
