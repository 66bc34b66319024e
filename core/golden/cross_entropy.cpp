// Cross entropy of rows of logits and its gradient: the declarations' formulas, fp64.
#include "core/golden/cross_entropy.hpp"

#include <rlk/sdk/ops/cross_entropy_backward.hpp>

namespace rlk::golden {
namespace {

template <class Call>
std::vector<Score> scores_of_row(const Call& call, int64_t n) {
  std::vector<Score> scores;
  for (int64_t v = 0; v < call.V; ++v) {
    scores.push_back(score_of(CapParams{1, call.params.softcap}, call.logits.load(n, v), 0));
  }
  return scores;
}

}  // namespace

DataError cross_entropy(CallOf<sdk::ops::CrossEntropy>& call) {
  return answer_cross_entropy(call, [&call](int64_t n) { return scores_of_row(call, n); });
}

DataError cross_entropy_backward(CallOf<sdk::ops::CrossEntropyBackward>& call) {
  const CrossEntropyGradients gradient(call);
  DataError first;
  for (int64_t n = 0; n < call.N; ++n) {
    const bool ignored = is_ignored(call, n);
    const std::vector<Score> scores = ignored ? std::vector<Score>() : scores_of_row(call, n);
    DataError error = ignored ? DataError{} : row_error(call, n);
    if (!ignored && error.kind == kNoDataError && all_masked(scores)) error = {kNoFiniteLogit, n, 0};
    keep_first(first, error);
    for (int64_t v = 0; v < call.V; ++v) {
      if (ignored) {
        put(call.grad_logits, 0.0);
      } else if (error.kind != kNoDataError) {
        put(call.grad_logits, std::numeric_limits<double>::quiet_NaN());
      } else {
        put(call.grad_logits, gradient(scores[static_cast<size_t>(v)], n, v));
      }
    }
  }
  return first;
}

}  // namespace rlk::golden
