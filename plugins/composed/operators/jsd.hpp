// Divergences between a teacher's and a student's distribution over a vocabulary, and the gradient of the student's
// logits. Of logits that are known, or made of hidden states (linear_jsd.hpp).
#pragma once

#include "../scores.hpp"

#include <rlk/formula/above_tangent.hpp>

namespace rlk::composed {

struct DivergenceOptions {
  double beta, temperature;

  bool asks_f64() const { return temperature < 0x1p-60 || temperature > 0x1p60; }
  bool is_between() const { return beta > 0 && beta < 1; }
};

// A token of the student (q), of the teacher (p) and what they are compared with (m).
struct ComparedToken {
  Value log_q, log_p, q, p, m, log_m;

  template <class D>
  ComparedToken(D d, const DivergenceOptions& options, Value of_student, Value of_teacher)
      : log_q(of_student),
        log_p(of_teacher),
        q(exp(d, log_q)),
        p(exp(d, log_p)),
        m(options.beta == 0 ? q : p),
        log_m(options.beta == 0 ? log_q : log_p) {
    if (!options.is_between()) return;
    m = MulAdd(number(d, options.beta), p, Mul(number(d, 1 - options.beta), q));
    log_m = log(d, at_least(d, D::kDtype == sdk::Dtype::f32 ? 0x1p-126 : 0x1p-1000, m));
    log_m = IfThenElse(Eq(log_p, log_q), log_p, log_m);  // no rounding parts the equal
  }
};

// divergence_term. In fp32 the series reaches further, as the difference loses more of its bits.
template <class D>
Value divergence_of(D d, Value x, Value log_x, Value y, Value log_y) {
  if (D::kDtype == sdk::Dtype::f64) return divergence_term(d, x, log_x, y, log_y);
  const Value difference = Sub(log_y, log_x);
  const Value series = horner(d, difference, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5);
  Value far = NegMulAdd(x, difference, Sub(y, x));
  far = IfThenZeroElse(Lt(far, Zero(d)), far);
  const Value near = Mul(x, Mul(Mul(difference, difference), series));
  return IfThenElse(Eq(x, Zero(d)), y, IfThenElse(Lt(Abs(difference), number(d, 0.125)), near, far));
}

// Reports the first kept row of which a model has no score; answers which rows have scores of both.
template <class D>
Mask with_scores(D d, Mask kept, Value x, Value y) {
  const Mask empty = Or(is_without_score(d, x), is_without_score(d, y));
  d.recorder->report(And(kept, empty).node);
  return Not(empty);
}

template <class D, class Call>
void record_jsd(D d, const DivergenceOptions& terms, const Call& call, Value x, Value y) {
  using V = Value;
  const Writer out{*d.recorder};
  const Mask kept = kept_rows(*d.recorder, call.mask), valid = with_scores(d, kept, x, y);
  const DistributionOfRow<D> student(d, x, terms.temperature), teacher(d, y, terms.temperature);
  const ComparedToken token(d, terms, student.log_probability(d), teacher.log_probability(d));
  const V of_teacher = row_sum(divergence_of(d, token.p, token.log_p, token.m, token.log_m));
  const V of_student =
      terms.beta == 0 ? Zero(d) : row_sum(divergence_of(d, token.q, token.log_q, token.m, token.log_m));
  V loss = terms.beta == 0 ? of_teacher : of_student;
  if (terms.is_between()) loss = MulAdd(number(d, terms.beta), of_teacher, Mul(number(d, 1 - terms.beta), of_student));
  out(of_row(call.loss), answer_of(d, kept, valid, loss));
  out(of_row(call.lse), answer_of(d, kept, valid, student.lse(d, terms.temperature)));
  out(of_row(call.teacher_lse), answer_of(d, kept, valid, teacher.lse(d, terms.temperature)));
  out(of_row(call.student_kl), answer_of(d, kept, valid, of_student));
}
// The gradient of the student's logits.
template <class D, class Call>
Value jsd_slopes(D d, const DivergenceOptions& terms, const Call& call, Value x, Value y) {
  using V = Value;
  const Reader<D> in{*d.recorder};
  const V temperature = number(d, terms.temperature);
  const Mask kept = kept_rows(*d.recorder, call.mask), valid = with_scores(d, kept, x, y);
  const auto log_probability = [&](V score, const View& lse) {
    return at_most(d, 0, Sub(Div(score, temperature), in(of_row(lse))));
  };
  const ComparedToken token(d, terms, log_probability(x, call.lse), log_probability(y, call.teacher_lse));
  V slope = Sub(token.q, token.p);
  if (terms.beta > 0) {
    const V above = Sub(Sub(token.log_q, token.log_m), in(of_row(call.student_kl)));
    slope = IfThenZeroElse(Eq(token.q, Zero(d)), Mul(token.q, above));
  }
  const double weight = (terms.is_between() ? 1 - terms.beta : 1) / terms.temperature;
  const V factor = Mul(number(d, weight), in(of_row(call.grad_loss)));
  return answer_of(d, kept, valid, Mul(factor, slope));
}

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(Jsd, (DivergenceOptions{call.params.beta, call.params.temperature}), std::nullopt,
                    { record_jsd(d, terms, call, in(call.logits), in(call.teacher_logits)); })
RLK_COMPOSED_SCORES(JsdBackward, (DivergenceOptions{call.params.beta, call.params.temperature}), std::nullopt,
                    { out(call.grad_logits, jsd_slopes(d, terms, call, in(call.logits), in(call.teacher_logits))); })
