// Log-probabilities of chosen tokens, with log-sum-exp, entropy and the sum of squares, and the gradient of the logits.
// Of logits that are known, or made of hidden states (linear_logp.hpp).
#pragma once

#include "../scores.hpp"

#include <rlk/formula/cross_entropy.hpp>

namespace rlk::composed {

struct LogpOptions {
  double temperature, softcap;

  bool asks_f64() const {
    const auto is_far = [](double x) { return x < 0x1p-60 || x > 0x1p60; };
    return is_far(temperature) || (softcap > 0 && is_far(softcap));
  }
};
template <class Call>
LogpOptions logp_options(const Call& call) {
  return {call.params.temperature, call.params.softcap};
}

template <class Call>
Entries entries_of(const Call& call) {
  return {call.V, call.params.vocab_start, call.params.global_vocab > 0 ? call.params.global_vocab : call.V};
}
template <class Call>
Targets targets_of(Recorder& recorder, const Call& call) {
  return Targets(recorder, call.ids, call.mask, call.params.ignore_index, entries_of(call));
}
template <class Call>
sdk::Refusal refuse_logp(const Call& call) {
  if (call.row_indices.is_present())
    return sdk::Support::no("PARAMETER", "row_indices are not composed of primitives; pass the rows themselves");
  return refuse_ids(call.params.ignore_index, entries_of(call).all);
}

// What is left of logits with their bias, capped and divided; what keep_mask drops is -inf.
struct Scores {
  Value x, z, slope;

  template <class D, class Call>
  Scores(D d, const LogpOptions& options, const Call& call, Value logits)
      : x(Add(logits, Reader<D>{*d.recorder}(or_number(of_columns(call.bias), 0)))), z(x), slope(number(d, 1)) {
    Recorder& recorder = *d.recorder;
    if (options.softcap > 0) {
      const Capped<Value> capped = cap_of(d, x, options.softcap);
      z = capped.value;
      slope = capped.slope;
    }
    z = Div(z, number(d, options.temperature));
    slope = Div(slope, number(d, options.temperature));
    if (!call.keep_mask.is_present()) return;
    const Mask is_kept{&recorder, recorder.cast(recorder.input(call.keep_mask), sdk::Dtype::boolean)};
    x = IfThenElse(is_kept, x, Neg(Inf(d)));
    z = IfThenElse(is_kept, z, Neg(Inf(d)));
  }
};

template <class D, class Call>
void record_logp(D d, const LogpOptions& options, const Call& call, Value logits) {
  using V = Value;
  const Writer out{*d.recorder};
  const Targets targets = targets_of(*d.recorder, call);
  const V z = Scores(d, options, call, logits).z;
  const Mask active = targets.active(), valid = targets.report(is_without_score(d, z));
  const V largest = row_largest(z), below = Sub(z, largest), power = exp(d, below), sum = row_sum(power);
  const V log_sum = log(d, sum), lowest = Neg(Inf(d));
  // Of a row of a shard without a score, and of one of which another shard has the id.
  const bool is_shard = entries_of(call).is_shard();
  const Mask empty = is_without_score(d, z);
  const auto unless = [&](Mask lacking, V instead, V value) {
    return is_shard ? IfThenElse(lacking, instead, value) : value;
  };
  const V logp = Sub(Sub(targets.at_target(d, z), largest), log_sum);
  out(of_row(call.logp), answer_of(d, active, valid, unless(Or(empty, Not(targets.owned())), lowest, logp)));
  out(of_row(call.lse), answer_of(d, active, valid, unless(empty, lowest, Add(largest, log_sum))));
  const V moment = row_sum(IfThenZeroElse(Eq(below, lowest), Mul(below, power)));
  out(of_row(call.entropy), answer_of(d, active, valid, unless(empty, Zero(d), Sub(log_sum, Div(moment, sum)))));
  const V squares = at_most(d, 1, Div(Div(row_sum(Mul(power, power)), sum), sum));
  out(of_row(call.sum_p2), answer_of(d, active, valid, unless(empty, Zero(d), squares)));
}
// The gradient of the logits.
template <class D, class Call>
Value logp_slopes(D d, const LogpOptions& options, const Call& call, Value logits) {
  using V = Value;
  const Reader<D> in{*d.recorder};
  const Targets targets = targets_of(*d.recorder, call);
  const V one = number(d, 1);
  const Scores scores(d, options, call, logits);
  const Mask active = targets.active(), valid = targets.report(is_without_score(d, scores.z));
  const V log_p = finite_log_probability(d, scores.z, in(of_row(call.lse)));
  const V p = exp(d, log_p);
  V slope = Mul(in(of_row(call.grad_logp)), IfThenElse(targets.hits(d), Sub(one, p), Neg(p)));
  if (call.grad_lse.is_present()) slope = MulAdd(in(of_row(call.grad_lse)), p, slope);
  if (call.grad_entropy.is_present()) {
    const V of_entropy = Mul(p, Add(log_p, in(of_row(call.entropy))));
    slope = NegMulAdd(in(of_row(call.grad_entropy)), of_entropy, slope);
  }
  return answer_of(d, active, valid, IfThenZeroElse(Eq(scores.x, Neg(Inf(d))), Mul(slope, scores.slope)));
}

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(Logp, logp_options(call), refuse_logp(call), { record_logp(d, terms, call, in(call.logits)); })
RLK_COMPOSED_SCORES(LogpBackward, logp_options(call), refuse_logp(call), {
  const V slopes = logp_slopes(d, terms, call, in(call.logits));
  out(call.grad_logits, slopes);
  recorder.sum(of_columns(call.grad_bias), sum_of_rows(slopes).node);
})
