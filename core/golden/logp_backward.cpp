// The gradient of logp's outputs with respect to logits and bias: the declaration's formula, element by element, fp64.
#include <rlk/sdk/forward.hpp>

#include <limits>

#include "core/golden/logp_rows.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {
namespace {}  // namespace

// A data error makes grad_bias NaN as a whole, because the sum over rows has an undefined term. row_indices are
// compared between consecutive active rows; a row index that is out of order makes the logits row that it names NaN.
DataError logp_backward(CallOf<sdk::ops::LogpBackward>& call) {
  const auto forward = sdk::forward_of<CallOf<sdk::ops::Logp>>(call);
  // Ignored and unlisted rows stay exactly 0.
  std::vector<std::vector<Tracked>> gradients(static_cast<size_t>(call.R),
                                              std::vector<Tracked>(static_cast<size_t>(call.V)));
  DataError first;
  int64_t previous_row = -1;  // the highest logits row that an active row has named so far
  for (int64_t n = 0; n < call.N; ++n) {
    if (is_ignored(call, n)) continue;
    const int64_t r = logits_row(call, n);
    const bool row_exists = r >= 0 && r < call.R;
    DataError error = row_error(call, n);
    if (error.kind == kNoDataError && r <= previous_row) error = {kRowOutOfRange, n, r};
    const std::vector<Score> scores = row_exists ? scores_of(forward, r) : std::vector<Score>();
    const bool has_none = all_masked(scores) && has_whole_vocabulary(call);
    if (error.kind == kNoDataError && has_none) error = {kNoFiniteLogit, n, 0};
    keep_first(first, error);
    if (!row_exists) continue;
    const RowGradients row = row_gradients(call, n);
    for (int64_t v = 0; v < call.V; ++v) {
      const Tracked gradient = gradient_of(scores[static_cast<size_t>(v)], row, v == row.target);
      gradients[static_cast<size_t>(r)][static_cast<size_t>(v)] = error.kind != kNoDataError ? kNan : gradient;
    }
    previous_row = std::max(previous_row, r);
  }
  for (const std::vector<Tracked>& row : gradients) {
    for (const Tracked& gradient : row) put(call.grad_logits, gradient);
  }
  for (size_t v = 0; v < static_cast<size_t>(call.V); ++v) {
    TrackedSum sum;
    if (first.kind != kNoDataError) sum.add(kNan);
    for (const std::vector<Tracked>& row : gradients) sum.add(row[v]);
    put(call.grad_bias, sum.total());
  }
  return first;
}

}  // namespace rlk::golden
