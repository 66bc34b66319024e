// Cross entropy from hidden states, and the gradients of hidden, weight and bias: linear_logp's passes over the
// products, with the sum of the scores beside their log-sum-exp, and cross_entropy's answers from them.
//
// Cost model: that of linear_logp and linear_logp_backward. A row's log-probabilities are functions of the row alone,
// and rows are summed in their order: bits do not depend on threads. fused_linear_cross_entropy is one after the other
// here: a batch of rows has no memory for its scores over the whole vocabulary.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/fused_linear_cross_entropy.hpp>
#include <rlk/sdk/ops/linear_cross_entropy.hpp>
#include <rlk/sdk/ops/linear_cross_entropy_backward.hpp>

#include "core/cpu/linear/linear_gradient_batches.hpp"
#include "core/cpu/linear/linear_logp.hpp"
#include "core/cpu/loss/cross_entropy_rows.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::LinearCrossEntropy>;
using Backward = CallOf<sdk::ops::LinearCrossEntropyBackward>;

CallOf<sdk::ops::LinearLogp> rows_of(const Forward& call) {
  CallOf<sdk::ops::LinearLogp> rows;
  rows.hidden = call.hidden;
  rows.weight = call.weight;
  rows.ids = call.ids;
  rows.bias = call.bias;
  rows.mask = call.mask;
  rows.N = call.N;
  rows.V = call.V;
  rows.D = call.D;
  rows.params.softcap = call.params.softcap;
  rows.params.ignore_index = call.params.ignore_index;
  return rows;
}
bool with_score_sums(const Forward& call) {
  return call.params.label_smoothing > 0;
}

DataError linear_cross_entropy(const Forward& call, const Context& context) {
  auto* const logp_of_rows = static_cast<double*>(context.workspace);
  double* const lse = logp_of_rows + call.N;
  double* const sums = lse + call.N;
  CallOf<sdk::ops::LinearLogp> rows = rows_of(call);
  rows.logp = Array::of(logp_of_rows);
  rows.lse = Array::of(lse);
  const ScoreSums score_sums{with_score_sums(call) ? sums : nullptr,
                             call.class_weight.present() ? &call.class_weight : nullptr};
  const DataError error = linear_logp(rows, {context.parallel, sums + call.N}, score_sums);
  put_cross_entropies(call, [&](int64_t n) { return RowScores{logp_of_rows[n], lse[n], sums[n]}; });
  return error;
}

int64_t workspace_bytes(const Forward& call) {
  return 3 * call.N * static_cast<int64_t>(sizeof(double)) +
         linear_logp_workspace_bytes(rows_of(call), with_score_sums(call));
}

double operations(const Forward& call) {
  return 2 * static_cast<double>(call.N) * static_cast<double>(call.V) * static_cast<double>(call.D);
}

using Gradients = CrossEntropyGradients<Backward>;

using Fused = CallOf<sdk::ops::FusedLinearCrossEntropy>;

// The call as a forward and a backward.
struct Halves {
  explicit Halves(const Fused& call)
      : backward(sdk::backward_of<Backward>(call)), forward(sdk::forward_of<Forward>(backward)) {
    forward.loss = call.loss;
    forward.token_loss = call.token_loss;
    forward.z_loss = call.z_loss;
    backward.grad_hidden = call.grad_hidden;
    backward.grad_weight = call.grad_weight;
    backward.grad_bias = call.grad_bias;
  }
  Backward backward;
  Forward forward;
};
// Of the log-sum-exps between the two, in whole pieces of 256 bytes.
int64_t kept_numbers(const Fused& call) {
  return round_up(call.N, int64_t{256 / sizeof(double)});
}

DataError fused_linear_cross_entropy(const Fused& call, const Context& context) {
  auto* const lse = static_cast<double*>(context.workspace);
  const Context rest{context.parallel, lse + kept_numbers(call)};
  double one = 1;
  Halves halves(call);
  halves.forward.lse = halves.backward.lse = Array::of(lse);
  halves.backward.grad_loss = Array::of(&one);
  const DataError error = linear_cross_entropy(halves.forward, rest);
  logp_gradients<Backward, Gradients>(halves.backward, rest);  // finds the same error
  for (int64_t n = 0; n < call.N && call.lse.present(); ++n) call.lse.put(n, lse[n]);
  return error;
}
int64_t fused_workspace_bytes(const Fused& call) {
  const Halves halves(call);
  return kept_numbers(call) * static_cast<int64_t>(sizeof(double)) +
         std::max(workspace_bytes(halves.forward),
                  logp_gradients_workspace_bytes<Backward, Gradients>(halves.backward));
}
double fused_operations(const Fused& call) {
  const Halves halves(call);
  return operations(halves.forward) + linear_gradient_operations(halves.backward);
}

}  // namespace

RLK_CPU_KERNEL(LinearCrossEntropy, .run = linear_cross_entropy, .operations = operations,
               .workspace_bytes = workspace_bytes, .switches = kLinearSwitches<kLinearSegment>);
RLK_CPU_KERNEL(LinearCrossEntropyBackward, .run = logp_gradients<Backward, Gradients>,
               .operations = linear_gradient_operations<Backward>,
               .workspace_bytes = logp_gradients_workspace_bytes<Backward, Gradients>,
               .switches = kLinearSwitches<kMostColumns>);
RLK_CPU_KERNEL(FusedLinearCrossEntropy, .run = fused_linear_cross_entropy, .operations = fused_operations,
               .workspace_bytes = fused_workspace_bytes, .switches = kLinearSwitches<kMostColumns>);

}  // namespace rlk::cpu
