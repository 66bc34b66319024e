// Importance ratio and KL estimate from logits, and the gradient of the policy's logits: the kernels of logp, and
// ratio_kl between them.
//
// Cost model: the logits of each model are read once, one model after the other; the backward reads the policy's once
// more and writes its gradient. Beyond that, some numbers per token in the workspace: log-probabilities are not rounded
// to the outputs' dtype before they are used.
#include <rlk/sdk/ops/logits_ratio_kl.hpp>
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/logp/logp_rows.hpp"
#include "core/cpu/policy/ratio_kl.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::LogitsRatioKl>;
using Backward = CallOf<sdk::ops::LogitsRatioKlBackward>;

constexpr int64_t kDouble = sizeof(double);

int64_t forward_workspace(const Forward& call) {
  return 2 * call.N * kDouble + logp_workspace_bytes(call.N, call.V);
}

// Of the lowest bad row of either model.
DataError logits_ratio_kl(const Forward& call, const Context& context) {
  const bool has_reference = call.ref_logits.present();
  auto* logps = static_cast<double*>(context.workspace);
  const Array policy_logp = Array::of(logps), ref_logp = has_reference ? Array::of(logps + call.N) : Array();
  const Context of_logp{context.parallel, logps + 2 * call.N};

  CallOf<sdk::ops::Logp> policy;
  policy.logits = call.logits;
  policy.ids = call.ids;
  policy.mask = call.mask;
  policy.logp = policy_logp;
  policy.lse = call.lse;
  policy.N = policy.R = call.N;
  policy.V = call.V;
  policy.params.temperature = call.params.temperature;
  policy.params.ignore_index = call.params.ignore_index;
  DataError error = logp(policy, of_logp);
  if (has_reference) {
    CallOf<sdk::ops::Logp> reference = policy;
    reference.logits = call.ref_logits;
    reference.logp = ref_logp;
    reference.lse = {};
    const DataError other = logp(reference, of_logp);
    if (error.kind == kNoDataError || (other.kind != kNoDataError && other.row < error.row)) error = other;
  }

  parallel_for(context.parallel, call.N, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      TokenRatioKl token{call.params.masked_ratio, 0, 0, 0};
      const double own = policy_logp.get(n);
      if (!is_ignored(call, n)) token = token_ratio_kl(call.params, own, call.old_logp, ref_logp, n);
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
  const Array& logits = call.logits;
  auto* grad_logp = static_cast<double*>(context.workspace);
  const Scores scores = make_scores(logits.dtype, call.params.temperature, 0, logits.strides[1]);
  parallel_for(context.parallel, call.N, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      grad_logp[n] = 0;
      if (is_ignored(call, n) || row_error(call, n).kind != kNoDataError) continue;
      const void* row = element(logits.data, n * logits.strides[0], logits.dtype);
      const double own = score_of(scores, row, call.ids.integer(n)) - call.lse.get(n);
      const TokenRatioKl token = token_ratio_kl(call.params, own, call.old_logp, call.ref_logp, n);
      grad_logp[n] = call.grad_ratio.get(n) * token.ratio_slope;
      if (call.grad_kl.present()) grad_logp[n] += call.grad_kl.get(n) * token.kl_slope;
    }
  });

  CallOf<sdk::ops::LogpBackward> of_logp;
  of_logp.logits = logits;
  of_logp.ids = call.ids;
  of_logp.mask = call.mask;
  of_logp.lse = call.lse;
  of_logp.grad_logp = Array::of(grad_logp);
  of_logp.grad_logits = call.grad_logits;
  of_logp.N = of_logp.R = call.N;
  of_logp.V = call.V;
  of_logp.params.temperature = call.params.temperature;
  of_logp.params.ignore_index = call.params.ignore_index;
  return logp_backward(of_logp, {context.parallel, grad_logp + call.N});
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
