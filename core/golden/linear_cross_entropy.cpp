// Cross entropy from hidden states and its gradients, apart and in one: the declarations' formulas, fp64.
#include <rlk/sdk/ops/fused_linear_cross_entropy.hpp>
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

// What CrossEntropyGradients reads of a call whose lse is its own, and whose grad_loss is 1.
struct OwnGradients {
  struct One {
    double load(int64_t) const { return 1; }
  };
  struct None {
    bool present() const { return false; }
    double load(int64_t) const { return 0; }
  };
  struct Kept {
    std::vector<Tracked> numbers;
    Tracked load(int64_t n) const { return numbers[static_cast<size_t>(n)]; }
  };
  using Call = CallOf<sdk::ops::FusedLinearCrossEntropy>;

  explicit OwnGradients(const Call& call)
      : ids(call.ids),
        class_weight(call.class_weight),
        mask(call.mask),
        N(call.N),
        V(call.V),
        params(call.params),
        epsilon(call.epsilon),
        lse{std::vector<Tracked>(static_cast<size_t>(call.N))} {}
  const View &ids, &class_weight, &mask;
  const int64_t N, V;
  const decltype(Call::params)& params;
  const double epsilon;
  One grad_loss;
  None grad_token_loss;
  Kept lse;
};

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

DataError fused_linear_cross_entropy(CallOf<sdk::ops::FusedLinearCrossEntropy>& call) {
  const CallOf<sdk::ops::LinearLogp> rows = rows_of(call);
  const std::vector<double> weight = load_matrix(call.weight);
  answer_cross_entropy(call, [&](int64_t n) { return scores_of(rows, weight, n); });
  OwnGradients own(call);
  const CrossEntropyGradients gradient(own);
  const auto row = [&](int64_t n) {
    RowOfGradients of_row;
    if (is_ignored(call, n)) return of_row;
    of_row.error = row_error(call, n);
    if (of_row.error.kind != kNoDataError) return of_row;
    const std::vector<Score> scores = scores_of(rows, weight, n);
    if (all_masked(scores)) of_row.error = {kNoFiniteLogit, n, 0};
    own.lse.numbers[static_cast<size_t>(n)] = logp_of(scores, call.ids.load_int(n)).lse;
    for (int64_t v = 0; v < call.V; ++v) {
      of_row.dx.push_back(gradient(scores[static_cast<size_t>(v)], n, v));
    }
    return of_row;
  };
  // The gradients start from 1, so that slopes are of ordinary size beside the smallest hidden states and weights.
  return answer_linear_gradients(call, row, kTiny);
}

}  // namespace rlk::golden
