// The clipped squared error of a value function, per token and reduced, and its gradient.
#include "../skeleton/tokens.cuh"

#include <rlk/formula/loss_weights.hpp>
#include <rlk/formula/value_loss.hpp>

namespace rlk::formula {

struct ValueRules {
  double clip_eps, at_bound;
  LossWeights weights;
  bool has_counts;
  double length;  // of dense sequences without a mask, where the gradient's weights need it, else 0
};
template <class Call>
inline ValueRules value_rules(const Call& call) {
  ValueRules rules{};
  rules.clip_eps = call.old_values != nullptr ? call.params.clip_eps : __builtin_huge_val();
  rules.weights = loss_weights(call.params);
  return rules;
}
template <class Call>
inline ValueRules value_gradient_rules(const Call& call) {
  ValueRules rules = value_rules(call);
  rules.at_bound = gradient_at_bound(call.params.clamp_gradient);
  rules.has_counts = call.cu_seqlens != nullptr || (rules.weights.needs_counts() && call.mask != nullptr);
  if (rules.has_counts) return rules;
  const auto sequences = static_cast<double>(call.values->shape[0]);
  rules.length = static_cast<double>(call.values->shape[1]);
  rules.weights.tokens = sequences * rules.length;
  rules.weights.sequences = sequences * rules.weights.sequences_of(rules.length);
  return rules;
}
inline const char* refusal_of(const ValueRules&) {
  return nullptr;
}

struct ValueOwn {
  double active, loss;
};
struct ValueBatch {
  double tokens, sequences, clipped;
};
struct ValueState {
  double clip_eps, at_bound, of_loss;
};

// gradient: counts only.
template <bool counts>
struct ValueLosses {
  using Rules = ValueRules;
  using Own = ValueOwn;
  enum { kValue, kTarget, kOldValue, kMask, kGradToken, kTokenLoss = 5, kLossPlace, kClipFraction };
  enum { kActive, kLoss, kClipped };
  static constexpr int kIns = 5, kOuts = counts ? 0 : 1, kSums = counts ? 1 : 3, kLargest = kSums, kTotals = 3;
  static constexpr int kStep = 4;
  static constexpr bool kAgain = !counts;

  static bool is_wanted(const ValueRules& rules) { return !counts || rules.has_counts; }
  template <class View>
  static RLK_FORMULA ValueState begin(const ValueRules& rules, const View&, int64_t) {
    return {rules.clip_eps, 0, 0};
  }
  static RLK_FORMULA void token(const ValueState& state, const double* in, double* sums, double* out) {
    const Lane<double> d;
    if (in[kMask] == 0) return;
    sums[kActive] = Add(sums[kActive], 1.0);
    if constexpr (!counts) {
      const auto clip = clip_value(d, in[kValue], in[kTarget], in[kOldValue], state.clip_eps);
      out[0] = value_loss_of(d, clip);
      sums[kLoss] = Add(sums[kLoss], out[0]);
      if (clip.clip > clip.plain) sums[kClipped] = Add(sums[kClipped], 1.0);
    }
  }
  template <class View>
  static RLK_FORMULA void sequence(const ValueRules& rules, const View& view, int64_t b, const double* sums,
                                   double* totals) {
    view.template own<ValueOwn>(b) = {sums[kActive], counts ? 0.0 : sums[kSums > 1 ? kLoss : kActive]};
    totals[0] = Add(totals[0], sums[kActive]);
    totals[1] = Add(totals[1], rules.weights.sequences_of(sums[kActive]));
    if constexpr (!counts) totals[2] = Add(totals[2], sums[kClipped]);
  }
  template <class View>
  static RLK_FORMULA void batch(const ValueRules&, const View& view, const double* totals) {
    view.template batch<ValueBatch>() = {totals[0], totals[1], totals[2]};
    if (!counts) view.put(kClipFraction, 0, totals[2] / (totals[0] < 1 ? 1 : totals[0]));
  }
  template <class View>
  static RLK_FORMULA LossWeights weights_of(const ValueRules& rules, const View& view) {
    LossWeights weights = rules.weights;
    weights.tokens = view.template batch<ValueBatch>().tokens;
    weights.sequences = view.template batch<ValueBatch>().sequences;
    return weights;
  }
  template <class View>
  static RLK_FORMULA double again(const ValueRules& rules, const View& view, int64_t b) {
    const ValueOwn& own = view.template own<ValueOwn>(b);
    return weights_of(rules, view).weighted(own.loss, own.active);
  }
  template <class View>
  static RLK_FORMULA void last(const ValueRules&, const View& view, double sum) {
    view.put(kLossPlace, 0, sum);
  }
};
using ValueErrors = ValueLosses<false>;
using ValueCounts = ValueLosses<true>;

struct ValueGradients : ValueErrors {
  enum { kGradValues = 5, kGradLoss };
  static constexpr int kOuts = 1, kSums = 0;

  static bool is_wanted(const ValueRules&) { return true; }
  template <class View>
  static RLK_FORMULA ValueState begin(const ValueRules& rules, const View& view, int64_t b) {
    const double grad_loss = view.number(kGradLoss, 0);
    const double of_loss = rules.has_counts
                               ? weights_of(rules, view).weighted(grad_loss, view.template own<ValueOwn>(b).active)
                               : rules.weights.weighted(grad_loss, rules.length);
    return {rules.clip_eps, rules.at_bound, of_loss};
  }
  static RLK_FORMULA void token(const ValueState& state, const double* in, double*, double* out) {
    const Lane<double> d;
    if (in[kMask] == 0) return;
    const double slope = value_slope_of(d, in[kValue], in[kTarget], in[kOldValue], state.clip_eps, state.at_bound);
    out[0] = Mul(Add(state.of_loss, in[kGradToken]), slope);
  }
};

}  // namespace rlk::formula

RLK_SIMT_TOKEN_PASSES(ValueErrors, ValueCounts, ValueGradients)
RLK_SIMT_TOKENS(ValueLoss, value_rules(call), (in(values), in(returns), or_zero(old_values), or_one(mask), none(in)),
                (out(token_loss), put(loss), put(clip_fraction)), (ValueErrors))
RLK_SIMT_TOKENS(ValueLossBackward, value_gradient_rules(call),
                (in(values), in(returns), or_zero(old_values), or_one(mask), or_zero(grad_token_loss)),
                (out(grad_values), each(grad_loss)), (ValueCounts, ValueGradients))
