// Rows of logits of two models as distributions: what jsd, linear_jsd and their backwards agree on.
#pragma once

#include <rlk/sdk/ops/logp.hpp>

#include <vector>

#include "core/golden/above_tangent.hpp"
#include "core/golden/logp_rows.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/optional.hpp"

namespace rlk::golden {

// lse of every row, by the reference of logp, which has no use here for its ids.
class RowSums {
public:
  template <class Call>
  RowSums(const Call& call, const View& logits) : ids_(static_cast<size_t>(call.N), 0), shape_{call.N}, strides_{1} {
    rows_.logits = logits;
    rows_.ids = {ids_.data(), Dtype::i64, 1, shape_, strides_};
    rows_.mask = call.mask;
    rows_.N = rows_.R = call.N;
    rows_.V = call.V;
    rows_.params.temperature = call.params.temperature;
    error_ = logp(rows_);
    for (int64_t n = 0; n < call.N; ++n) {
      bool all_masked = is_kept(call.mask, n);
      for (int64_t v = 0; v < call.V && all_masked; ++v) {
        all_masked = logits.load(n, v) == -std::numeric_limits<double>::infinity();
      }
      bad_.push_back(all_masked);
    }
  }
  const DataError& error() const { return error_; }
  bool is_bad(int64_t n) const { return bad_[static_cast<size_t>(n)]; }
  Tracked lse(int64_t n) const {
    return {rows_.lse.value[static_cast<size_t>(n)], rows_.lse.cond[static_cast<size_t>(n)]};
  }

private:
  std::vector<int64_t> ids_;
  int64_t shape_[1], strides_[1];
  CallOf<sdk::ops::Logp> rows_;
  DataError error_;
  std::vector<bool> bad_;
};

// Of one token: of the student (q), of the teacher (p), and of their mixture (m).
struct Probabilities {
  Tracked log_q, log_p, q, p, m, log_m;

  // Of scores, which are logits over the temperature.
  Probabilities(Tracked score, Tracked teacher_score, Tracked lse, Tracked teacher_lse, double beta_of_call)
      : log_q(log_probability(score, lse)),
        log_p(log_probability(teacher_score, teacher_lse)),
        q(exp(log_q)),
        p(exp(log_p)) {
    const Tracked beta(beta_of_call, beta_of_call);
    m = beta * p + (Tracked(1.0) - beta) * q;
    log_m = m.value < 0x1p-1000 && std::max(p.value, q.value) > 0 ? log_of_tiny_mixture(beta_of_call) : log(m);
    if (log_p.value == log_q.value) log_m.value = log_p.value;  // what two have alike is not rounded apart
  }

private:
  // At most 0, however lse was rounded.
  static Tracked log_probability(const Tracked& score, const Tracked& lse) {
    const Tracked difference = score - lse;
    return {std::min(difference.value, 0.0), difference.error};
  }
  // The logarithm of what loses its last digits, or is 0 although p or q is not.
  Tracked log_of_tiny_mixture(double beta) const {
    const Tracked& high = log_p.value > log_q.value ? log_p : log_q;
    const double sum = beta * std::exp(log_p.value - high.value) + (1 - beta) * std::exp(log_q.value - high.value);
    return rounded(high.value + std::log(sum), log_p.error + log_q.error);
  }
};

// Of logits.
template <class Call>
Probabilities probabilities(const Call& call, Tracked lse, Tracked teacher_lse, int64_t n, int64_t v) {
  const Tracked temperature(call.params.temperature, call.params.temperature);
  return {Tracked(call.logits.load(n, v)) / temperature, Tracked(call.teacher_logits.load(n, v)) / temperature, lse,
          teacher_lse, call.params.beta};
}

// x log(x / y); 0 where x is.
inline Tracked relative(const Tracked& x, const Tracked& log_x, const Tracked& log_y) {
  return x.value == 0 ? Tracked(0.0, x.error) : x * (log_x - log_y);
}

// sum x log(x / y), off by no more than the sum of these terms as they stand.
class DivergenceSum {
public:
  void add(const Tracked& x, const Tracked& log_x, const Tracked& y, const Tracked& log_y) {
    of_formula_.add(relative(x, log_x, log_y));
    terms_.add(divergence_term(x.value, log_x.value, y.value, log_y.value));
  }
  Tracked total() const { return {terms_.value(), of_formula_.total().error}; }

private:
  TrackedSum of_formula_;
  Sum terms_;
};

// A row's loss and student_kl. at(v): its Probabilities.
struct Divergence {
  Tracked loss = 0.0, student_kl = 0.0;
};
template <typename At>
Divergence divergence(double beta, int64_t vocab, Tracked lse, Tracked teacher_lse, At&& at) {
  DivergenceSum of_teacher, of_student;
  for (int64_t v = 0; v < vocab; ++v) {
    const Probabilities token = at(v);
    of_teacher.add(token.p, token.log_p, beta == 0 ? token.q : token.m, beta == 0 ? token.log_q : token.log_m);
    of_student.add(token.q, token.log_q, beta == 1 ? token.p : token.m, beta == 1 ? token.log_p : token.log_m);
  }
  Divergence row;
  row.student_kl = beta == 0 ? Tracked(0.0) : of_student.total();
  row.loss = beta == 0 ? of_teacher.total()
             : beta == 1
                 ? of_student.total()
                 : Tracked(beta, beta) * of_teacher.total() + (Tracked(1.0) - Tracked(beta, beta)) * of_student.total();
  // A NaN or an infinity of either model is in its lse.
  if (!std::isfinite(lse.value) || !std::isfinite(teacher_lse.value)) {
    row.loss = std::numeric_limits<double>::quiet_NaN();
    row.student_kl = beta == 0 ? 0.0 : row.loss.value;
  }
  return row;
}

// The gradient of a token's logit, of a loss whose own is grad_loss.
template <class Call>
Tracked logit_gradient(const Call& call, const Probabilities& at, int64_t n) {
  const double beta = call.params.beta;
  Tracked h = at.q - at.p;
  if (beta != 0) {
    const Tracked log_ratio = at.log_q - (beta == 1 ? at.log_p : at.log_m);
    h = at.q.value == 0 ? Tracked(0.0, at.q.error) : at.q * (log_ratio - Tracked(call.student_kl.load(n)));
    if (beta != 1) h = (Tracked(1.0) - Tracked(beta, beta)) * h;
  }
  return Tracked(call.grad_loss.load(n)) * h / Tracked(call.params.temperature, call.params.temperature);
}

}  // namespace rlk::golden
