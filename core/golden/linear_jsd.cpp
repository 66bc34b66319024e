// Divergences of two models from hidden states, and the gradients of the student's: the declarations' formulas, fp64.
#include <rlk/sdk/ops/linear_jsd.hpp>
#include <rlk/sdk/ops/linear_jsd_backward.hpp>

#include "core/golden/distributions.hpp"
#include "core/golden/linear_gradients.hpp"

namespace rlk::golden {
namespace {

// The scores of both models, each those of linear_logp.
class Models {
public:
  template <class Call>
  explicit Models(const Call& call)
      : student_(rows_of(call, call.hidden, call.bias, call.D)),
        teacher_(rows_of(call, call.teacher_hidden, call.teacher_bias, call.E)),
        weight_(load_matrix(call.weight)),
        teacher_weight_(load_matrix(call.teacher_weight)),
        beta_(call.params.beta) {}

  // Of row n from now on. False when every score of one of them is -inf.
  bool go_to(int64_t n) {
    x_ = scores_of(student_, weight_, n);
    y_ = scores_of(teacher_, teacher_weight_, n);
    return !all_masked(x_) && !all_masked(y_);
  }
  Tracked lse() const { return logp_of(x_, 0).lse; }
  Tracked teacher_lse() const { return logp_of(y_, 0).lse; }
  Probabilities at(int64_t v, Tracked lse, Tracked teacher_lse) const {
    const Score &x = x_[static_cast<size_t>(v)], &y = y_[static_cast<size_t>(v)];
    return {Tracked(x.z, x.z_error), Tracked(y.z, y.z_error), lse, teacher_lse, beta_};
  }

private:
  template <class Call>
  static CallOf<sdk::ops::LinearLogp> rows_of(const Call& call, const View& hidden, const View& bias, int64_t depth) {
    CallOf<sdk::ops::LinearLogp> rows;
    rows.hidden = hidden;
    rows.bias = bias;
    rows.V = call.V;
    rows.D = depth;
    rows.params.temperature = call.params.temperature;
    rows.epsilon = call.epsilon;
    return rows;
  }

  const CallOf<sdk::ops::LinearLogp> student_, teacher_;
  const std::vector<double> weight_, teacher_weight_;
  const double beta_;
  std::vector<Score> x_, y_;
};

}  // namespace

DataError linear_jsd(CallOf<sdk::ops::LinearJsd>& call) {
  Models models(call);
  DataError error;
  for (int64_t n = 0; n < call.N; ++n) {
    Divergence row;
    Tracked lse, teacher_lse;
    if (is_kept(call.mask, n)) {
      if (models.go_to(n)) {
        lse = models.lse();
        teacher_lse = models.teacher_lse();
        row = divergence(call.params.beta, call.V, lse, teacher_lse,
                         [&](int64_t v) { return models.at(v, lse, teacher_lse); });
      } else {
        keep_first(error, {kNoFiniteLogit, n, 0});
        row.loss = row.student_kl = lse = teacher_lse = std::numeric_limits<double>::quiet_NaN();
      }
    }
    put(call.loss, row.loss);
    put(call.lse, lse);
    put(call.teacher_lse, teacher_lse);
    put(call.student_kl, row.student_kl);
  }
  return error;
}

DataError linear_jsd_backward(CallOf<sdk::ops::LinearJsdBackward>& call) {
  Models models(call);
  return answer_linear_gradients(call, [&](int64_t n) {
    RowOfGradients of_row;
    if (!is_kept(call.mask, n)) return of_row;
    if (!models.go_to(n)) of_row.error = {kNoFiniteLogit, n, 0};
    for (int64_t v = 0; v < call.V; ++v) {
      const Probabilities at = models.at(v, call.lse.load(n), call.teacher_lse.load(n));
      of_row.dx.push_back(logit_gradient(call, at, n));
    }
    return of_row;
  });
}

}  // namespace rlk::golden
