// The gradients of linear_logp's outputs with respect to hidden, weight and bias: the declaration's formula, fp64.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include "core/golden/linear_gradients.hpp"

namespace rlk::golden {

DataError linear_logp_backward(CallOf<sdk::ops::LinearLogpBackward>& call) {
  auto forward = sdk::forward_of<CallOf<sdk::ops::LinearLogp>>(call);
  forward.epsilon = call.epsilon;
  const std::vector<double> weight = load_matrix(call.weight);
  return answer_linear_gradients(call, [&](int64_t n) {
    RowOfGradients of_row;
    if (is_ignored(call, n)) return of_row;
    of_row.error = row_error(call, n);
    if (of_row.error.kind != kNoDataError) return of_row;
    const std::vector<Score> scores = scores_of(forward, weight, n);
    if (all_masked(scores) && has_whole_vocabulary(call)) of_row.error = {kNoFiniteLogit, n, 0};
    const RowGradients row = row_gradients(call, n);
    for (int64_t v = 0; v < call.V; ++v) {
      of_row.dx.push_back(gradient_of(scores[static_cast<size_t>(v)], row, v == row.target));
    }
    return of_row;
  });
}

}  // namespace rlk::golden
