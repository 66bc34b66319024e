// Forward KL of a teacher's most probable tokens, and the gradient of the student's logits.
#include "../places.hpp"

#include <rlk/formula/clamp.hpp>
#include <rlk/formula/estimates.hpp>

namespace rlk::composed {

struct TopkKlOptions {
  double temperature, bound;  // bound: of what a log-probability is at least minus this

  bool asks_f64() const { return temperature < 0x1p-60 || temperature > 0x1p60; }
};
template <class Call>
TopkKlOptions topk_kl_options(const Call& call) {
  return {call.params.temperature, formula::bound_or_none(call.params.logp_clamp)};
}

// What is wrong with rows, and their numbers of the teacher's tokens, [rows, tokens].
template <class D>
struct TeachersTokens {
  Mask kept, valid;
  Value index, z;

  template <class Call>
  TeachersTokens(D d, const Call& call, Value logits)
      : kept(kept_rows(*d.recorder, call.mask)),
        valid(kept),
        index(logits),
        z(Div(logits, number(d, call.params.temperature))) {
    const Places places(*d.recorder, call.ids, call.V);
    const Mask empty = is_without_score(d, z);
    places.report_rows(kept, empty);
    valid = Not(Or(places.has_unknown(), empty));
    index = places.index();
  }
};

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(TopkKl, topk_kl_options(call), refuse_ids(call.V), {
  const TeachersTokens<decltype(d)> tokens(d, call, in(call.logits));
  const V largest = row_largest(tokens.z), log_sum = log(d, row_sum(exp(d, Sub(tokens.z, largest))));
  const V s = Sub(Sub(at_column(tokens.z, tokens.index), largest), log_sum), t = in(call.teacher_logp);
  const V least = at_least(d, -terms.bound, t), p = exp(d, least);
  const V term = IfThenZeroElse(Eq(p, Zero(d)), Mul(p, Sub(least, at_least(d, -terms.bound, s))));
  const auto put_row = [&](const View& to, V x) { out(of_row(to), answer_of(d, tokens.kept, tokens.valid, x)); };
  put_row(call.loss, row_sum(term));
  put_row(call.lse, Add(largest, log_sum));
  put_row(call.student_mass, row_sum(exp(d, s)));
  put_row(call.teacher_mass, row_sum(exp(d, t)));
})
RLK_COMPOSED_SCORES(TopkKlBackward, topk_kl_options(call), refuse_many(call.K, call.V), {
  const TeachersTokens<decltype(d)> tokens(d, call, in(call.logits));
  const V lse = in(of_row(call.lse)), s = Sub(at_column(tokens.z, tokens.index), lse);
  const V passed =
      clamp_gradient(d, s, number(d, -terms.bound), Inf(d), formula::gradient_at_bound(call.params.clamp_gradient));
  const V weight = Mul(exp(d, at_least(d, -terms.bound, in(call.teacher_logp))), passed);
  const V w = IfThenElse(IsNaN(s), s, weight);
  PlaceSums<decltype(d)> sums(d, call.V);
  for (int64_t k = 0; k < call.K; ++k) sums.add(column_of(tokens.index, k), column_of(w, k));
  const V p = exp(d, finite_log_probability(d, tokens.z, lse));
  const V gradient = Mul(in(of_row(call.grad_loss)), Sub(Mul(p, row_sum(w)), sums.total()));
  out(call.grad_logits, answer_of(d, tokens.kept, tokens.valid, Div(gradient, number(d, terms.temperature))));
})
