// Losses of preferred and rejected sequences, and their gradients.
#include "../tokens.hpp"

#include <rlk/formula/preference.hpp>

namespace rlk::composed {

// The losses of a call, each sequence's along one dimension.
template <class D>
struct Preferences {
  formula::PreferenceRules rules;
  bool is_kto;
  Value hc, hr;
  PairLoss<Value> pair;     // of kto: of the chosen ones alone
  KtoLoss<Value> rejected;  // of kto

  template <class Call, class In>
  Preferences(D d, const Call& call, const In& in)
      : rules(formula::preference_rules(call.params, static_cast<double>(call.N), static_cast<double>(call.M))),
        is_kto(rules.kind == formula::PreferenceRules::Kind::kto),
        hc(Sub(in(call.chosen_logp), in(or_number(call.ref_chosen_logp, 0)))),
        hr(Sub(in(call.rejected_logp), in(or_number(call.ref_rejected_logp, 0)))),
        pair{Zero(d), Zero(d), Zero(d)},
        rejected{Zero(d), Zero(d)} {
    if (!is_kto) {
      pair = pair_loss_of(d, rules, PreferencePair<Value>{in(call.chosen_logp), in(call.rejected_logp), hc, hr});
      return;
    }
    const Value kl = in(or_number(call.kl, 0));
    const KtoLoss<Value> chosen = kto_loss_of(d, rules.beta, rules.desirable, Sub(hc, kl));
    pair = {chosen.value, chosen.slope, Zero(d)};
    rejected = kto_loss_of(d, rules.beta, rules.undesirable, Sub(kl, hr));
    rejected.slope = Neg(rejected.slope);
  }
};

}  // namespace rlk::composed

RLK_COMPOSED_TOKENS(PreferenceLoss, std::nullopt, {
  const Preferences<D> all(d, call, in);
  out(call.pair_loss, all.pair.value);
  out(call.rejected_loss, all.rejected.value);
  out(call.chosen_reward, Mul(number(d, all.rules.beta), all.hc));
  out(call.rejected_reward, Mul(number(d, all.rules.beta), all.hr));
  V sum = row_sum(all.pair.value);
  if (all.is_kto) sum = Add(sum, row_sum(all.rejected.value));
  out(call.loss, all.rules.factor == 0 ? Zero(d) : Mul(sum, number(d, all.rules.factor)));
})
RLK_COMPOSED_TOKENS(PreferenceLossBackward, std::nullopt, {
  const Preferences<D> all(d, call, in);
  const V of_loss = all.rules.factor == 0 ? Zero(d) : Mul(number(d, all.rules.factor), in(call.grad_loss));
  const V of_pair = Add(of_loss, in(or_number(call.grad_pair_loss, 0)));
  out(call.grad_chosen_logp, weighted(d, of_pair, all.pair.chosen));
  const V of_sequence = Add(of_loss, in(or_number(call.grad_rejected_loss, 0)));
  out(call.grad_rejected_logp,
      all.is_kto ? weighted(d, of_sequence, all.rejected.slope) : weighted(d, of_pair, all.pair.rejected));
})
