// GRPO's loss of logits and rewards, and the gradient of the logits: the scores of tokens, which are rows of the
// vocabulary, then the terms of tokens, in fp64 where the device has it.
#include "../groups.hpp"
#include "../scores.hpp"
#include "../tokens.hpp"

#include <rlk/formula/policy_rules.hpp>

namespace rlk::composed {
using formula::PolicyRules;
}  // namespace rlk::composed

#include <rlk/formula/policy_kinds.hpp>

namespace rlk::composed {

struct GrpoOptions {
  PolicyRules rules;  // of the clip
  double beta, temperature;

  bool asks_f64() const { return temperature < 0x1p-60 || temperature > 0x1p60; }
};
template <class Call>
GrpoOptions grpo_options(const Call& call, double at_bound) {
  GrpoOptions options{PolicyRules{}, call.params.beta, call.params.temperature};
  options.rules.ratio_low = 1 - call.params.clip_low;
  options.rules.ratio_high = 1 + call.params.clip_high;
  options.rules.delta = std::numeric_limits<double>::infinity();
  options.rules.at_bound = at_bound;
  return options;
}

template <class Call>
GrpoOptions grpo_gradient_options(const Call& call) {
  return grpo_options(call, formula::gradient_at_bound(call.params.clamp_gradient));
}

template <class Call>
sdk::Refusal refuse_grpo(const Call& call) {
  if (call.group_boundaries.is_present())
    return sdk::Support::no("PARAMETER", "groups by boundaries are not composed of primitives; grouping fixed is");
  return refuse_ids(call.V);
}

// Of [sequences, tokens] or [sequences, tokens, columns], a row for each token.
inline Value rows_of_tokens(Recorder& recorder, const View& view) {
  return {&recorder, recorder.token_rows(view.dims.size() == 2 ? of_row(view) : view)};
}
template <class D>
Value in_rows(D d, const View& view) {
  return {d.recorder, d.recorder->cast(rows_of_tokens(*d.recorder, view).node, D::kDtype)};
}
inline void out_rows(const View& view, Value value) {
  if (!view.is_present()) return;
  Recorder& recorder = *value.recorder;
  recorder.output_token_rows(view.dims.size() == 2 ? of_row(view) : view, recorder.rounded(value.node, view.dtype));
}
template <class D>
Value widened(D d, Value x) {
  return {d.recorder, d.recorder->cast(x.node, D::kDtype)};
}

template <class Call>
Targets targets_of_tokens(Recorder& recorder, const Call& call) {
  Mask kept{&recorder, recorder.number(1, sdk::Dtype::boolean)};
  if (call.mask.is_present()) kept.node = recorder.cast(rows_of_tokens(recorder, call.mask).node, sdk::Dtype::boolean);
  return {rows_of_tokens(recorder, call.ids), kept, call.params.ignore_index, call.V};
}

// What is made of all sequences before the first row: the advantage of each and the number of active tokens.
template <class D>
struct GrpoBatch {
  D tag;
  Dims sizes;
  int64_t samples;
  Value advantages;  // [groups, samples]
  Value advantage;   // of each row
  Value count;       // [1, 1]

  template <class Call>
  GrpoBatch(D d, const Call& call)
      : tag(d),
        sizes(call.ids.dims),
        samples(call.params.samples_per_prompt > 0 ? call.params.samples_per_prompt : call.B),
        advantages(advantages_of(call)),
        advantage(advantages),
        count(number(d, static_cast<double>(sizes[0] * sizes[1]))) {
    Recorder& recorder = *d.recorder;
    const Value ids{&recorder, recorder.table(call.ids)};
    // Whatever stands for a token whose id is no column, it is in error if it is active.
    const Value each = IfThenElse(Ge(ids, detail::beside(ids, 0)), reshaped(advantages, {sizes[0], 1}),
                                  number(d, std::numeric_limits<double>::quiet_NaN()));
    advantage = ahead_of_rows(reshaped(each, {sizes[0] * sizes[1], 1}));

    Mask kept{&recorder, recorder.number(1, sdk::Dtype::boolean)};
    if (call.mask.is_present()) kept.node = recorder.cast(recorder.table(call.mask), sdk::Dtype::boolean);
    const Mask active = Targets::without(kept, ids, call.params.ignore_index);
    if (recorder.nodes()[static_cast<size_t>(active.node)].word == Word::number) return;
    count = ahead(sum_of_rows(row_sum(IfThenElse(active, number(d, 1), Zero(d)))));
  }

  // Of what is one for each row, over all active tokens.
  Value mean(Value of_row) const {
    const Value sum = sum_of_rows(row_sum(reshaped(collected(of_row), sizes)));
    return IfThenZeroElse(Eq(count, Zero(tag)), Div(sum, count));
  }
  PolicyTerm<Value> clipped(const PolicyRules& rules, Value logp, Value old_logp) const {
    const Value log_ratio = Sub(logp, old_logp);
    const Mask none = Lt(Zero(tag), Zero(tag));
    return ppo(tag, rules, PolicyInput<Value>{logp, old_logp, advantage, log_ratio, exp(tag, log_ratio), none});
  }

private:
  // A group without variance has 0, also where eps is below what the dtype holds.
  template <class Call>
  Value advantages_of(const Call& call) const {
    const auto& params = call.params;
    const D d = tag;
    const View view = in_groups(call.rewards, samples);
    const Value reward{d.recorder, d.recorder->cast(d.recorder->table(view), D::kDtype)};
    const Mask all{d.recorder, d.recorder->number(1, sdk::Dtype::boolean)};
    const auto group = deviations_of(d, all, reward, row_largest(reward), number(d, static_cast<double>(samples)),
                                     params.std == decltype(params.std)::unbiased, [](Value x) { return row_sum(x); });
    const bool adds = params.eps_mode == decltype(params.eps_mode)::additive;
    const Value divisor = adds ? Add(group.deviation, number(d, params.eps)) : at_least(d, params.eps, group.deviation);
    return IfThenZeroElse(Eq(group.off, Zero(d)), Div(group.off, divisor));
  }
};

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(GrpoLoss, grpo_options(call, 0), refuse_grpo(call), {
  const Targets targets = targets_of_tokens(recorder, call);
  const bool has_reference = call.ref_logits.is_present();
  const V x = in_rows(d, call.logits), y = has_reference ? in_rows(d, call.ref_logits) : x;
  const Mask active = targets.active(), x_empty = is_without_score(d, x), y_empty = is_without_score(d, y);
  const Mask valid = targets.report(Or(x_empty, y_empty));
  const DistributionOfRow<D> policy(d, x, terms.temperature), reference(d, y, terms.temperature);
  const V logp = Sub(at_column(policy.below, targets.column()), policy.log_sum);
  const V ref_logp = has_reference ? Sub(at_column(reference.below, targets.column()), reference.log_sum) : Zero(d);
  const Mask x_valid = AndNot(x_empty, targets.known()), y_valid = AndNot(y_empty, targets.known());
  out_rows(call.lse, answer_of(d, active, x_valid, policy.lse(d, terms.temperature)));
  out_rows(call.logp, answer_of(d, active, x_valid, logp));
  out_rows(call.ref_logp, has_reference ? answer_of(d, active, y_valid, ref_logp) : Zero(d));

  record_tokens(recorder, any_f64<Op>(call), [&](auto w) {
    const GrpoBatch<decltype(w)> batch(w, call);
    const V own = widened(w, logp);
    const V surrogate = batch.clipped(terms.rules, own, in_rows(w, call.old_logp)).value;
    const V of_policy = batch.mean(answer_of(w, active, valid, surrogate));
    V kl = Zero(w);
    if (has_reference) kl = kl_estimate(w, PolicyRules::KlKind::k3, Sub(widened(w, ref_logp), own)).value;
    const V of_kl = batch.mean(answer_of(w, active, valid, kl));
    out(of_columns(call.policy_loss), of_policy);
    out(of_columns(call.kl), of_kl);
    out(of_columns(call.loss), terms.beta != 0 ? MulAdd(number(w, terms.beta), of_kl, of_policy) : of_policy);
    out(in_groups(call.advantages, batch.samples), batch.advantages);
  });
})
RLK_COMPOSED_SCORES(GrpoLossBackward, grpo_gradient_options(call), refuse_grpo(call), {
  const Targets targets = targets_of_tokens(recorder, call);
  const V x = in_rows(d, call.logits), temperature = number(d, terms.temperature);
  const Mask active = targets.active(), valid = targets.report(is_without_score(d, x));
  V gain = x, of_target = x;
  record_tokens(recorder, any_f64<Op>(call), [&](auto w) {
    const GrpoBatch<decltype(w)> batch(w, call);
    const Reader<decltype(w)> in_wide{recorder};
    const V logit = widened(w, at_column(x, targets.column()));
    const V z = Div(logit, number(w, terms.temperature));
    // Above 0 by what rounding gives, and no more where lse has no digits behind the point.
    const V own = at_most(w, 1.0 / 64, Sub(z, in_rows(w, call.lse)));
    V slope = batch.clipped(terms.rules, own, in_rows(w, call.old_logp)).d_log_ratio;
    if (terms.beta != 0) {
      const V away = Sub(in_rows(w, call.ref_logp), own);
      slope = NegMulAdd(number(w, terms.beta), exp_minus_one(w, away), slope);
    }
    const V share = ahead(Div(in_wide(of_columns(call.grad_loss)), batch.count));
    const V wide = Div(weighted(w, share, slope), number(w, terms.temperature));
    gain = widened(d, wide);
    of_target = widened(d, Mul(wide, exp_minus_one(w, own)));
  });
  const V log_p = at_most(d, 1.0 / 64, Sub(Div(x, temperature), in_rows(d, call.lse)));
  const V all = Mul(gain, exp(d, log_p));
  const V gradient = Neg(IfThenElse(targets.hits(d), of_target, all));
  out_rows(call.grad_logits, answer_of(d, active, valid, IfThenZeroElse(Eq(x, Neg(Inf(d))), gradient)));
})
