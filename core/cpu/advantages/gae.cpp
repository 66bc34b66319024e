// Generalised advantage estimates and discounted returns, in fp64: both are a scan from the last token to the first.
#include <rlk/sdk/ops/gae.hpp>
#include <rlk/sdk/ops/returns.hpp>

#include "core/cpu/advantages/reverse_scan.hpp"
#include "core/cpu/simd/data_error.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using MaskRule = ReverseScanArgs::MaskRule;

MaskRule scan_rule(sdk::ops::returns::MaskRule rule) {
  if (rule == sdk::ops::returns::MaskRule::reset) return MaskRule::reset;
  if (rule == sdk::ops::returns::MaskRule::zero) return MaskRule::zero;
  return MaskRule::carry;
}

// What both calls have.
template <class Call>
ReverseScanArgs scan_of(const Call& call, const Context& context) {
  ReverseScanArgs scan;
  scan.sequences = sequences_of(call.rewards, call.cu_seqlens);
  scan.rewards = call.rewards;
  scan.mask = call.mask;
  scan.workspace = context.workspace;
  return scan;
}

DataError gae(const CallOf<sdk::ops::Gae>& call, const Context& context) {
  ReverseScanArgs scan = scan_of(call, context);
  if (const DataError error = scan.sequences.error(); error.kind != kNoDataError) return all_nan(call, error);
  scan.mask_rule = call.params.mask_rule == sdk::ops::gae::MaskRule::carry ? MaskRule::carry : MaskRule::zero;
  scan.values = call.values;
  scan.start_value = call.bootstrap;
  scan.discount = call.params.gamma;
  scan.decay = call.params.gamma * call.params.lam;
  scan.sums = call.advantages;
  scan.targets = call.returns;
  reverse_scan(scan, context.parallel);
  return {};
}

DataError returns(const CallOf<sdk::ops::Returns>& call, const Context& context) {
  ReverseScanArgs scan = scan_of(call, context);
  if (const DataError error = scan.sequences.error(); error.kind != kNoDataError) return all_nan(call, error);
  scan.mask_rule = scan_rule(call.params.mask_rule);
  scan.start_sum = call.bootstrap;
  scan.discount = 0;
  scan.decay = call.params.gamma;
  scan.sums = call.returns;
  reverse_scan(scan, context.parallel);
  return {};
}

// Lengths of packed sequences are not known before the call: one of them may be all tokens.
template <class Call>
int64_t scan_workspace(const Call& call) {
  const Sequences sequences = sequences_of(call.rewards, call.cu_seqlens);
  return reverse_scan_workspace_bytes(sequences.count, sequences.length, sequences.elements());
}

}  // namespace

RLK_CPU_KERNEL(Gae, .run = gae, .operations = per_element<1000>, .workspace_bytes = scan_workspace);
RLK_CPU_KERNEL(Returns, .run = returns, .operations = per_element<1000>, .workspace_bytes = scan_workspace);

}  // namespace rlk::cpu
