// The policy loss of a batch, its metrics, and its gradient, of tokens by themselves and of ratios of whole sequences.
#include "../tokens.hpp"

#include <rlk/formula/policy_rules.hpp>

namespace rlk::composed {
using formula::PolicyRules;
using formula::PolicySequence;
using formula::RejectionBounds;
}  // namespace rlk::composed

#include <rlk/formula/policy_loss.hpp>

namespace rlk::composed {

// What is not composed: whatever takes tokens by the whole batch, corrections of whole sequences, and kinds whose
// sequences have more than a ratio.
template <class Call>
sdk::Refusal refuse_policy(const Call& call, bool has_f64) {
  if (auto no = refuse_packed(call.cu_seqlens)) return no;
  const PolicyRules rules = formula::policy_rules_of(call, 0);
  const char* reason = formula::refusal_of(rules);
  if (rules.kind == PolicyRules::Kind::gmpo) reason = "kind gmpo is not composed of primitives";
  if (rules.kind == PolicyRules::Kind::vespo) reason = "kind vespo is not composed of primitives";
  if (rules.opsm != PolicyRules::Opsm::off) reason = "opsm is not composed of primitives";
  if (rules.has_corrections)
    reason = "corrections of whole sequences (rollout_is, reject_sequence) are not composed of primitives";
  if (rules.needs_mean) reason = "rollout_is_normalize by the batch's own mean is not composed of primitives";
  // A token is in or out by its divergence, which in fp32 is off by more than the bound allows.
  if (rules.gate != PolicyRules::Gate::ratio && !has_f64) reason = "rollout_gate by a divergence needs fp64";
  if (reason == nullptr) return std::nullopt;
  return sdk::Support::no("PARAMETER", reason);
}

// As PolicySequence, of what is composed.
struct PolicyOwn {
  static constexpr bool rejected = false, keeps_weights = true;
  static constexpr double weight = 1, off_policy = 0, phi_positive = 0, phi_negative = 0, geometric = 0;
  static constexpr double geometric_weight = 1, meant = 1;
  Value active, log_ratio, log_ratio_slope;
};

// A batch, with all that its loss and gradient have in common.
template <class D>
struct PolicyBatch {
  PolicyRules rules;
  Tokens<D> tokens;
  PolicyToken<Value> token;
  PolicyCounts<Value> counts;
  PolicyOwn own;
  PolicyLoss<Value> loss;

  template <class Call, class In>
  PolicyBatch(D d, const Call& call, const In& in, const View& grad_per_token, double at_bound)
      : rules(formula::policy_rules_of(call, at_bound)),
        tokens(d, call.logp, call.mask),
        token(token_of(call, in, grad_per_token, tokens)),
        counts(count_token(d, rules, rules.weight_divisor, own_of_none(d), token,
                           Mask{d.recorder, d.recorder->number(1, sdk::Dtype::boolean)})),
        own(own_of(d)),
        loss(loss_of(d, rules, own, token, counts, Lt(Zero(d), Zero(d)))) {}

  Value active(Value x) const { return IfThenElseZero(counts.active, x); }

private:
  template <class Call, class In>
  static PolicyToken<Value> token_of(const Call& call, const In& in, const View& grad_per_token,
                                     const Tokens<D>& tokens) {
    const Value logp = in(call.logp);
    const Value old_logp = call.old_logp.is_present() ? in(call.old_logp) : logp;
    const Value advantage = Add(in(call.advantages), in(of_row(or_number(call.sequence_advantages, 0))));
    return {logp,
            old_logp,
            advantage,
            tokens.ones(tokens.mask()),
            in(or_number(call.ref_logp, 0)),
            in(or_number(call.rollout_logp, 0)),
            in(or_number(call.entropy, 0)),
            in(or_number(call.weight, 1)),
            in(or_number(grad_per_token, 0))};
  }
  static PolicyOwn own_of_none(D d) { return {Zero(d), Zero(d), Zero(d)}; }
  // The mean of the log ratios of a sequence, or their sum.
  PolicyOwn own_of(D d) const {
    PolicyOwn made = own_of_none(d);
    made.active = tokens.counts(counts.active);
    if (rules.importance_ratio == PolicyRules::Ratio::token) return made;
    Value x = tokens.sums(active(Sub(token.logp, token.old_logp)));
    if (rules.importance_ratio != PolicyRules::Ratio::sequence_sum) x = Div(x, made.active);
    x = IfThenZeroElse(Eq(made.active, Zero(d)), x);
    made.log_ratio = clamped(d, x, rules.x_low, rules.x_high);
    made.log_ratio_slope = clamp_gradient(d, x, number(d, rules.x_low), number(d, rules.x_high), rules.at_bound);
    return made;
  }
};

// Sums of active tokens in the order of the metrics, with what they are divided by.
template <class D>
struct PolicyMetrics {
  Value active, unmasked, raw_weight, raw_square;
  std::vector<Value> sums;

  PolicyMetrics(D d, const PolicyBatch<D>& batch)
      : active(batch.own.active),
        unmasked(batch.tokens.counts(batch.counts.unmasked)),
        raw_weight(active),
        raw_square(active) {
    const auto& [value, d_own, d_sequence, kl, ratio, term] = batch.loss;
    const auto count = [&](Mask m) { return batch.tokens.counts(And(batch.counts.active, m)); };
    const auto sum = [&](Value x) { return batch.tokens.sums(batch.active(x)); };
    const auto& token = batch.token;
    sums = {sum(kl),
            sum(Sub(token.old_logp, token.logp)),
            count(term.clipped),
            count(term.clipped_lower),
            count(term.below),
            count(term.above),
            sum(ratio),
            sum(token.entropy),
            sum(term.phi),
            sum(batch.counts.weight),
            batch.tokens.counts(batch.counts.selected)};
    const Value raw = batch.counts.raw_weight;
    raw_weight = batch.tokens.sums(IfThenElseZero(batch.counts.unmasked, raw));
    raw_square = batch.tokens.sums(IfThenElseZero(batch.counts.unmasked, Mul(raw, raw)));
    (void)d;
  }
  static Value rejected_share(D d, Value unmasked, Value active) {
    return IfThenElseZero(Gt(unmasked, Zero(d)), Div(Sub(unmasked, active), unmasked));
  }
  template <class Out>
  void put_sequences(D d, const View& to, const Out& out) const {
    const Mask any = Gt(active, Zero(d));
    out(column(to, 0), active);
    for (size_t i = 0; i < sums.size(); ++i)
      out(column(to, static_cast<int64_t>(i) + 1), IfThenElseZero(any, Div(sums[i], active)));
    out(column(to, static_cast<int64_t>(sums.size()) + 1), rejected_share(d, unmasked, active));
  }
  template <class Out>
  void put_batch(D d, const Tokens<D>& tokens, const View& to, const Out& out) const {
    const View row = of_columns(to);
    const Value all = tokens.batch(active), mask = tokens.batch(unmasked), raw = tokens.batch(raw_weight);
    const Mask any = Gt(all, Zero(d));
    out(column(row, 0), all);
    for (size_t i = 0; i < sums.size(); ++i) {
      const Value sum = tokens.batch(sums[i]);
      out(column(row, static_cast<int64_t>(i) + 1), IfThenElse(any, Div(sum, all), sum));
    }
    const auto next = static_cast<int64_t>(sums.size()) + 1;
    out(column(row, next), rejected_share(d, mask, all));
    const Value mean = Div(raw, mask), square = tokens.batch(raw_square);
    out(column(row, next + 1), IfThenElseZero(Gt(mask, Zero(d)), mean));
    out(column(row, next + 2), IfThenZeroElse(Eq(square, Zero(d)), Mul(mean, Div(raw, square))));
  }
};

// By what the entropy's own mean is divided.
inline Value entropy_divisor(const PolicyRules& rules, Value selected) {
  if (rules.entropy_denominator > 0) return detail::beside(selected, rules.entropy_denominator);
  const Value one = detail::beside(selected, 1);
  return IfThenElse(Lt(selected, one), one, selected);
}

}  // namespace rlk::composed

RLK_COMPOSED_TOKENS(PolicyLoss, refuse_policy(call, can.has_f64), {
  const PolicyBatch<D> batch(d, call, in, View(), 0);
  const V active = batch.own.active;
  const V value = batch.active(batch.loss.value);
  const TokenWeights<D> weights(d, call.params, batch.tokens, active);
  V loss = batch.tokens.batch(weights.weighted(batch.tokens.sums(value), active));
  if (batch.rules.has_own_bonus) {
    const V entropy = batch.tokens.batch(batch.tokens.sums(IfThenElseZero(batch.counts.selected, batch.token.entropy)));
    const V selected = batch.tokens.batch(batch.tokens.counts(batch.counts.selected));
    const V bonus = Mul(number(d, batch.rules.entropy_coefficient), entropy);
    loss = Sub(loss, Div(bonus, entropy_divisor(batch.rules, selected)));
  }
  out(call.per_token, value);
  out(of_columns(call.loss), loss);
  if (!call.metrics.is_present() && !call.sequence_metrics.is_present()) return;
  const PolicyMetrics<D> metrics(d, batch);
  metrics.put_sequences(d, call.sequence_metrics, out);
  metrics.put_batch(d, batch.tokens, call.metrics, out);
})
RLK_COMPOSED_TOKENS(PolicyLossBackward, refuse_policy(call, can.has_f64), {
  const PolicyBatch<D> batch(d, call, in, call.grad_per_token, formula::gradient_at_bound(call.params.clamp_gradient));
  const V active = batch.own.active;
  const TokenWeights<D> weights(d, call.params, batch.tokens, active);
  const V grad_loss = in(call.grad_loss);
  const V g = Add(weights.weighted(grad_loss, active), batch.token.grad_per_token);
  V gradient = weighted(d, g, batch.loss.d_own);
  if (batch.rules.shares) {
    const V through = batch.tokens.sums(batch.active(weighted(d, g, batch.loss.d_sequence)));
    gradient = Add(times(d, through, share_of(d, batch.rules, batch.own, batch.token, batch.counts)), gradient);
  }
  out(call.grad_logp, batch.active(gradient));
  V of_entropy = g;
  if (batch.rules.has_own_bonus) {
    const V selected = batch.tokens.batch(batch.tokens.counts(batch.counts.selected));
    of_entropy = Div(grad_loss, entropy_divisor(batch.rules, selected));
  }
  out(call.grad_entropy,
      IfThenElseZero(batch.counts.selected, Mul(number(d, -batch.rules.entropy_coefficient), of_entropy)));
})
