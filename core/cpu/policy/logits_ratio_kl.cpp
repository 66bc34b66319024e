// Importance ratio and KL estimate from logits, and the gradient of the policy's logits: the kernels of logp and of
// ratio_kl, one after the other.
//
// Cost model: the logits of each model are read once, one model after the other; the backward reads the policy's once
// more and writes its gradient. Beyond that, some numbers per token in the workspace: log-probabilities are not rounded
// to the outputs' dtype before they are used.
#include <rlk/sdk/ops/logits_ratio_kl.hpp>
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>
#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/logp/logp_rows.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {

extern template const Kernel<sdk::ops::RatioKl>& kernel();  // of ratio_kl.cpp
extern template const Kernel<sdk::ops::RatioKlBackward>& kernel();

namespace {

using Forward = CallOf<sdk::ops::LogitsRatioKl>;
using Backward = CallOf<sdk::ops::LogitsRatioKlBackward>;

constexpr int64_t kDouble = sizeof(double);

// Of a call to ratio_kl or its backward, what one of this operator says: options, old_logp, which tokens count.
template <class OfTokens, class Call>
OfTokens call_of_tokens(const Call& call, uint8_t* counts) {
  OfTokens tokens;
  tokens.N = call.N;
  tokens.old_logp = call.old_logp;
  tokens.mask = Array::vector(counts, Dtype::u8);
  tokens.params.log_ratio_clamp = call.params.log_ratio_clamp;
  tokens.params.kl_kind = call.params.kl_kind;
  tokens.params.diff_clamp = call.params.diff_clamp;
  tokens.params.kl_weight = call.params.kl_weight;
  tokens.params.value_clamp = call.params.value_clamp;
  return tokens;
}

int64_t forward_workspace(const Forward& call) {
  return 2 * call.N * kDouble + logp_workspace_bytes(call.N, call.V) + call.N;
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

  auto* const counts = reinterpret_cast<uint8_t*>(logps + 2 * call.N) + logp_workspace_bytes(call.N, call.V);
  parallel_for(context.parallel, call.N, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      counts[n] = is_ignored(call, n) ? 0 : 1;
      if (call.logp.present()) call.logp.put(n, policy_logp.get(n));
      if (call.ref_logp.present()) call.ref_logp.put(n, ref_logp.get(n));
    }
  });
  auto tokens = call_of_tokens<CallOf<sdk::ops::RatioKl>>(call, counts);
  tokens.logp = policy_logp;
  tokens.ref_logp = ref_logp;
  tokens.ratio = call.ratio;
  tokens.kl = call.kl;
  tokens.params.masked_ratio = call.params.masked_ratio;
  kernel<sdk::ops::RatioKl>().run(tokens, {context.parallel});
  return error;
}

int64_t backward_workspace(const Backward& call) {
  return call.N * kDouble + logp_backward_workspace_bytes(call.N, false) + call.N;
}

DataError logits_ratio_kl_backward(const Backward& call, const Context& context) {
  const Array& logits = call.logits;
  auto* grad_logp = static_cast<double*>(context.workspace);  // first the log-probabilities themselves
  auto* const of_logp_backward = grad_logp + call.N;
  auto* const counts = reinterpret_cast<uint8_t*>(of_logp_backward) + logp_backward_workspace_bytes(call.N, false);
  const Scores scores = make_scores(logits.dtype, call.params.temperature, 0, logits.strides[1]);
  parallel_for(context.parallel, call.N, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      counts[n] = is_ignored(call, n) || row_error(call, n).kind != kNoDataError ? 0 : 1;
      grad_logp[n] = 0;
      if (counts[n] == 0) continue;
      const void* row = element(logits.data, n * logits.strides[0], logits.dtype);
      grad_logp[n] = logp_by_lse(score_of(scores, row, call.ids.integer(n)), call.lse.get(n));
    }
  });
  auto tokens = call_of_tokens<CallOf<sdk::ops::RatioKlBackward>>(call, counts);
  tokens.logp = Array::of(grad_logp);
  tokens.logp.shape[0] = call.N;
  tokens.grad_logp = tokens.logp;
  tokens.ref_logp = call.ref_logp;
  tokens.grad_ratio = call.grad_ratio;
  tokens.grad_kl = call.grad_kl;
  tokens.params.kl_gradient = call.params.kl_gradient;
  tokens.params.kl_gradient_weight_max = call.params.kl_gradient_weight_max;
  tokens.params.clamp_gradient = call.params.clamp_gradient;
  kernel<sdk::ops::RatioKlBackward>().run(tokens, {context.parallel});

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
  return logp_backward(of_logp, {context.parallel, of_logp_backward});
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
