// Cross entropy from hidden states and its gradients: the declarations' formulas, fp64.
#include <rlk/sdk/ops/linear_cross_entropy.hpp>
#include <rlk/sdk/ops/linear_cross_entropy_backward.hpp>

#include "core/golden/cross_entropy.hpp"
#include "core/golden/linear_gradients.hpp"

namespace rlk::golden {
namespace {

// The scores are those of linear_logp.
template <class Call>
CallOf<sdk::ops::LinearLogp> rows_of(const Call& call) {
  CallOf<sdk::ops::LinearLogp> rows;
  rows.hidden = call.hidden;
  rows.bias = call.bias;
  rows.V = call.V;
  rows.D = call.D;
  rows.params.softcap = call.params.softcap;
  rows.epsilon = call.epsilon;
  return rows;
}

}  // namespace

DataError linear_cross_entropy(CallOf<sdk::ops::LinearCrossEntropy>& call) {
  const CallOf<sdk::ops::LinearLogp> rows = rows_of(call);
  const std::vector<double> weight = load_matrix(call.weight);
  return answer_cross_entropy(call, [&](int64_t n) { return scores_of(rows, weight, n); });
}

DataError linear_cross_entropy_backward(CallOf<sdk::ops::LinearCrossEntropyBackward>& call) {
  const CallOf<sdk::ops::LinearLogp> rows = rows_of(call);
  const std::vector<double> weight = load_matrix(call.weight);
  const CrossEntropyGradients gradient(call);
  return answer_linear_gradients(call, [&](int64_t n) {
    RowOfGradients of_row;
    if (is_ignored(call, n)) return of_row;
    of_row.error = row_error(call, n);
    if (of_row.error.kind != kNoDataError) return of_row;
    const std::vector<Score> scores = scores_of(rows, weight, n);
    if (all_masked(scores)) of_row.error = {kNoFiniteLogit, n, 0};
    for (int64_t v = 0; v < call.V; ++v) {
      of_row.dx.push_back(gradient(scores[static_cast<size_t>(v)], n, v));
    }
    return of_row;
  });
}

}  // namespace rlk::golden
