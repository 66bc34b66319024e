// Importance ratio and KL estimate of every token from the logits of both models, and the gradient of the policy's.
#include "../scores.hpp"

#include <rlk/formula/ratio_kl.hpp>

namespace rlk::composed {

struct LogitsRatioKlOptions {
  RatioKlTerms of_tokens;
  double temperature;

  bool asks_f64() const { return temperature < 0x1p-60 || temperature > 0x1p60; }
};
inline LogitsRatioKlOptions ratio_kl_options(const Arguments<sdk::ops::LogitsRatioKl>& call) {
  return {ratio_kl_terms(call.params, call.old_logp.is_present(), call.kl.is_present()), call.params.temperature};
}
inline LogitsRatioKlOptions ratio_kl_options(const Arguments<sdk::ops::LogitsRatioKlBackward>& call) {
  return {ratio_kl_gradient_terms(call.params, call.old_logp.is_present(), call.grad_kl.is_present()),
          call.params.temperature};
}

// The token of each row under a model: 0 of a row that does not count, NaN of one in error.
struct TokenOfRow {
  Mask is_empty;
  Value lse, logp;

  template <class D>
  TokenOfRow(D d, const Targets& targets, Value logits, double temperature)
      : is_empty(is_without_score(d, logits)), lse(logits), logp(logits) {
    const DistributionOfRow<D> row(d, logits, temperature);
    const Mask valid = AndNot(is_empty, targets.known());
    lse = answer_of(d, targets.active(), valid, row.lse(d, temperature));
    const Value own = at_most(d, 0, Sub(at_column(row.below, targets.column()), row.log_sum));
    logp = answer_of(d, targets.active(), valid, own);
  }
};

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(LogitsRatioKl, ratio_kl_options(call), refuse_ids(call.V), {
  const Targets targets(recorder, call.ids, call.mask, call.params.ignore_index, call.V);
  const TokenOfRow own(d, targets, in(call.logits), terms.temperature);
  Mask is_empty = own.is_empty;
  V reference = Zero(d);
  if (call.ref_logits.is_present()) {
    const TokenOfRow other(d, targets, in(call.ref_logits), terms.temperature);
    is_empty = Or(is_empty, other.is_empty);
    reference = other.logp;
  }
  targets.report(is_empty);
  const V old = in(or_number(of_row(call.old_logp), 0));
  const V kept = IfThenElse(targets.active(), number(d, 1), Zero(d));
  out(of_row(call.ratio), ratio_of(d, terms.of_tokens, own.logp, old, kept));
  out(of_row(call.kl), kl_of(d, terms.of_tokens, own.logp, old, reference, kept));
  out(of_row(call.logp), own.logp);
  out(of_row(call.lse), own.lse);
  out(of_row(call.ref_logp), reference);
})
RLK_COMPOSED_SCORES(LogitsRatioKlBackward, ratio_kl_options(call), refuse_ids(call.V), {
  const Targets targets(recorder, call.ids, call.mask, call.params.ignore_index, call.V);
  const V x = in(call.logits), lse = in(of_row(call.lse));
  const V z = Div(x, number(d, terms.temperature));
  const Mask active = targets.active(), valid = targets.report(is_without_score(d, z));
  const V own = Sub(at_column(z, targets.column()), lse);
  const V slope = ratio_kl_gradient(d, terms.of_tokens, own, in(or_number(of_row(call.old_logp), 0)),
                                    in(or_number(of_row(call.ref_logp), 0)), number(d, 1), in(of_row(call.grad_ratio)),
                                    in(or_number(of_row(call.grad_kl), 0)));
  const V p = exp(d, finite_log_probability(d, z, lse));
  const V along = IfThenElse(targets.hits(d), Sub(number(d, 1), p), Neg(p));
  const V gradient = Div(Mul(slope, along), number(d, terms.temperature));
  out(call.grad_logits, answer_of(d, active, valid, IfThenZeroElse(Eq(x, Neg(Inf(d))), gradient)));
})
