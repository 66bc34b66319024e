// Cross entropy of rows of logits, and the gradient of the logits.
//
// Cost model: forward, every logit is read once (logp), twice with label smoothing; backward, read and written once.
// Blocks of a row are summed in their order and rows in theirs: bits do not depend on threads.
#include <rlk/sdk/ops/cross_entropy.hpp>
#include <rlk/sdk/ops/cross_entropy_backward.hpp>

#include <algorithm>
#include <atomic>

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/loss/cross_entropy_rows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/loss/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/logp/logp_gather-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// sum_v class_weight[v] z[v] of every row that counts.
void score_sums(const CallOf<sdk::ops::CrossEntropy>& call, const Context& context, double* sums) {
  const double softcap = call.params.softcap;
  const Line weights = or_one(line_of(call.class_weight));
  const auto weighted = [softcap](auto d, auto x, auto weight) HWY_ATTR {
    auto derivative = x;  // not needed here
    const auto z = softcap > 0 ? cap(d, x, softcap, derivative) : x;
    return hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), hn::Mul(weight, z));  // of -inf too; a NaN is in lse
  };
  for_each_row(context, call.N, call.V, [&](int64_t n) HWY_ATTR {
    if (is_ignored(call, n) || row_error(call, n).kind != kNoDataError) return;
    sums[n] = sum_of_lines<double>(from(line_of(call.logits, n), weights), call.V, weighted);
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(score_sums);

namespace {

using Forward = CallOf<sdk::ops::CrossEntropy>;
using Backward = CallOf<sdk::ops::CrossEntropyBackward>;

DataError cross_entropy(const Forward& call, const Context& context) {
  auto* const logp_of_rows = static_cast<double*>(context.workspace);
  double* const lse = logp_of_rows + call.N;
  double* const sums = lse + call.N;
  CallOf<sdk::ops::Logp> rows;
  rows.logits = call.logits;
  rows.ids = call.ids;
  rows.mask = call.mask;
  rows.logp = Array::of(logp_of_rows);
  rows.lse = Array::of(lse);
  rows.N = rows.R = call.N;
  rows.V = call.V;
  rows.params.softcap = call.params.softcap;
  rows.params.ignore_index = call.params.ignore_index;
  const DataError error = logp(rows, {context.parallel, sums + call.N});
  if (call.params.label_smoothing > 0) HWY_DYNAMIC_DISPATCH(score_sums)(call, context, sums);
  put_cross_entropies(call, [&](int64_t n) { return RowScores{logp_of_rows[n], lse[n], sums[n]}; });
  return error;
}

int64_t workspace_bytes(const Forward& call) {
  return 3 * call.N * static_cast<int64_t>(sizeof(double)) + logp_workspace_bytes(call.N, call.V);
}

constexpr int64_t kGrainColumns = 32768;  // columns per task at least

void fill(const Backward& call, int64_t n, double value) {
  for (int64_t v = 0; v < call.V; ++v) call.grad_logits.put(n, v, value);
}

DataError cross_entropy_backward(const Backward& call, const Context& context) {
  const CrossEntropyGradients gradients(call);
  const Scores scores = make_scores(call.logits.dtype, 1, call.params.softcap, call.logits.strides[1]);
  FirstBadRow bad;
  const int64_t grain = std::max<int64_t>(1, kGrainColumns / call.V);
  parallel_for(context.parallel, call.N, grain, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) {
      if (is_ignored(call, n)) {
        fill(call, n, 0);
        continue;
      }
      bool has_score = false;
      if (row_error(call, n).kind == kNoDataError) {
        const void* const row = element(call.logits.data, n * call.logits.strides[0], call.logits.dtype);
        const RowGradient gradient = gradients(n);
        for (int64_t begin = 0; begin < call.V; begin += kLogpBlock) {
          has_score |= gradient_block(scores, row, call.logits.strides[0], begin, std::min(begin + kLogpBlock, call.V),
                                      gradient, line_of(call.grad_logits, n), nullptr);
        }
      }
      if (has_score) continue;
      bad.report(n);
      fill(call, n, std::numeric_limits<double>::quiet_NaN());
    }
  });
  return first_error(call, bad);
}

template <class Call, int of_column>
double operations(const Call& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.V) * of_column;
}

constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", kLogpBlock + 1}};  // a second block of columns

}  // namespace

RLK_CPU_KERNEL(CrossEntropy, .run = cross_entropy, .operations = operations<Forward, 25>,
               .workspace_bytes = workspace_bytes, .switches = kSwitches);
RLK_CPU_KERNEL(CrossEntropyBackward, .run = cross_entropy_backward, .operations = operations<Backward, 25>,
               .switches = kSwitches);

}  // namespace rlk::cpu
#endif  // HWY_ONCE
