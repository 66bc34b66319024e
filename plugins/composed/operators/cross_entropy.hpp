// Cross entropy of rows of logits with target ids, and the gradient of the logits. Of logits that are known, or made of
// hidden states (linear_cross_entropy.hpp).
#pragma once

#include "../scores.hpp"

#include <rlk/formula/cross_entropy.hpp>

namespace rlk::composed {
using formula::counts_rows;
using formula::cross_entropy_terms;
using formula::CrossEntropyTerms;

template <class Call>
CrossEntropyTerms terms_of_entropy(const Call& call) {
  return cross_entropy_terms(call.params, call.class_weight.is_present());
}

template <class D>
Capped<Value> score_of_logit(D d, const CrossEntropyTerms& terms, Value x) {
  if (terms.softcap > 0) return cap_of(d, x, terms.softcap);
  return {x, number(d, 1)};
}

// The weight of each row's target and of all classes together.
template <class D>
struct ClassWeights {
  Value own, all;

  ClassWeights(D d, const View& weight, const Targets& targets, int64_t classes)
      : own(number(d, 1)), all(number(d, static_cast<double>(classes))) {
    if (!weight.is_present()) return;
    Recorder& recorder = *d.recorder;
    own = rows_of({&recorder, recorder.cast(recorder.table(of_row(weight)), D::kDtype)}, targets.column());
    all = row_sum({&recorder, recorder.cast(recorder.input(of_columns(weight)), D::kDtype)});
  }
};

// x by D and by Z of the declaration, both 0 where the reduction is none; active: [rows, 1], own: of_row.
template <class D>
struct Shares {
  bool is_none;
  Value entropy, square;  // D and Z

  Shares(D d, const CrossEntropyTerms& terms, Mask active, Mask known, Value own)
      : is_none(terms.reduction == CrossEntropyTerms::Reduction::none),
        entropy(number(d, terms.denominator > 0 ? terms.denominator : 1)),
        square(entropy) {
    if (!counts_rows(terms)) return;
    square = sum_of_rows(IfThenElse(active, number(d, 1), Zero(d)));
    entropy = terms.is_weighted ? sum_of_rows(IfThenElseZero(And(active, known), own)) : square;
  }
  // Divided by nothing it is 0, but a NaN stays.
  Value of(D d, Value x, Value by) const {
    if (is_none) return Zero(d);
    return IfThenElse(And(Eq(by, Zero(d)), Eq(x, x)), Zero(d), Div(x, by));
  }
};

// Answers the logarithm of each row's sum of powers.
template <class D, class Call>
Value record_cross_entropy(D d, const CrossEntropyTerms& terms, const Call& call, Value logits) {
  using V = Value;
  const Reader<D> in{*d.recorder};
  const Writer out{*d.recorder};
  const Targets targets(*d.recorder, call.ids, call.mask, call.params.ignore_index, call.V);
  const V z = score_of_logit(d, terms, logits).value;
  const Mask active = targets.active(), valid = targets.report(is_without_score(d, z));
  const ClassWeights<D> weights(d, call.class_weight, targets, call.V);

  // A row without a score is in error: what is made of it is never looked at.
  const RowPowers p = powers_of_row(d, z);
  const V log_sum = p.log_sum(d), lse = Add(p.largest, log_sum);
  const V logp = Sub(Sub(at_column(z, targets.column()), p.largest), log_sum);
  const V share = Mul(number(d, 1 - terms.smoothing), weights.own);
  V entropy = IfThenZeroElse(And(Eq(share, Zero(d)), IsInf(logp)), Mul(share, Neg(logp)));
  if (terms.smoothing > 0) {
    const V weight = in(or_number(of_columns(call.class_weight), 1));
    const V below = IfThenZeroElse(Eq(weight, Zero(d)), Mul(weight, Sub(p.largest, z)));
    const V spread = Add(Mul(weights.all, log_sum), row_sum(below));
    entropy = Add(entropy, Mul(number(d, terms.smoothing / static_cast<double>(call.V)), spread));
  }
  entropy = answer_of(d, active, valid, entropy);
  V square = Zero(d);
  if (terms.square_scale > 0) square = answer_of(d, active, valid, Mul(Mul(number(d, terms.square_scale), lse), lse));
  out(of_row(call.token_loss), Add(entropy, square));
  out(of_row(call.lse), answer_of(d, active, valid, lse));

  const Shares<D> shares(d, terms, active, targets.known(), weights.own);
  const V of_entropies = shares.of(d, sum_of_rows(collected(entropy)), shares.entropy);
  const V of_squares = terms.square_scale > 0 ? shares.of(d, sum_of_rows(collected(square)), shares.square) : Zero(d);
  out(of_columns(call.loss), Add(of_entropies, of_squares));
  out(of_columns(call.z_loss), of_squares);
  return lse;
}
// The gradient of the logits; grad, of_token: those of the loss and of each row's.
template <class D, class Call>
Value slopes_of_entropy(D d, const CrossEntropyTerms& terms, const Call& call, Value x, Value lse, Value grad,
                        Value of_token) {
  using V = Value;
  const Reader<D> in{*d.recorder};
  const Targets targets(*d.recorder, call.ids, call.mask, call.params.ignore_index, call.V);
  const Capped<V> z = score_of_logit(d, terms, x);
  const Mask active = targets.active(), valid = targets.report(is_without_score(d, z.value));
  const ClassWeights<D> weights(d, call.class_weight, targets, call.V);
  const Shares<D> shares(d, terms, active, targets.known(), weights.own);
  const V of_entropy = Add(ahead(shares.of(d, grad, shares.entropy)), of_token);
  const V of_square = Add(ahead(shares.of(d, grad, shares.square)), of_token);

  // power p - spread w, with p - 1 for p in the part of power that is of_target.
  const V of_target = Mul(Mul(number(d, 1 - terms.smoothing), weights.own), of_entropy);
  V rest = Zero(d), spread = Zero(d);
  if (terms.smoothing > 0) {
    spread = Mul(number(d, terms.smoothing / static_cast<double>(call.V)), of_entropy);
    rest = Mul(spread, weights.all);
  }
  if (terms.square_scale > 0) rest = Add(rest, Mul(Mul(number(d, 2 * terms.square_scale), lse), of_square));
  const V weight = in(or_number(of_columns(call.class_weight), 1));
  const auto slope = [&](V power, V w) { return terms.smoothing > 0 ? NegMulAdd(spread, w, power) : power; };
  const V at_target = at_column(z.value, targets.column()), log_p = Sub(at_target, lse);
  const V missed = MulAdd(of_target, exp_minus_one(d, log_p), Mul(rest, exp(d, log_p)));
  const V others = Mul(Add(of_target, rest), exp(d, Sub(z.value, lse)));
  const V gradient = Mul(IfThenElse(targets.hits(d), slope(missed, weights.own), slope(others, weight)), z.slope);
  return answer_of(d, active, valid, IfThenZeroElse(Eq(x, Neg(Inf(d))), gradient));
}
// Of a call that has them.
template <class D, class Call>
Value slopes_of_entropy(D d, const CrossEntropyTerms& terms, const Call& call, Value x) {
  const Reader<D> in{*d.recorder};
  return slopes_of_entropy(d, terms, call, x, in(of_row(call.lse)), in(of_columns(call.grad_loss)),
                           in(or_number(of_row(call.grad_token_loss), 0)));
}

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(CrossEntropy, terms_of_entropy(call), refuse_ids(call.V),
                    { record_cross_entropy(d, terms, call, in(call.logits)); })
RLK_COMPOSED_SCORES(CrossEntropyBackward, terms_of_entropy(call), refuse_ids(call.V),
                    { out(call.grad_logits, slopes_of_entropy(d, terms, call, in(call.logits))); })
