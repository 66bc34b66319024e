// Rewards of tokens with their KL penalty, and the mean KL of sequences.
#include "../tokens.hpp"

#include <rlk/formula/estimates.hpp>

RLK_COMPOSED_TOKENS(TokenRewards, refuse_packed(call.cu_seqlens), {
  enum class KlKind { k1, abs, k2, k3 };
  const Tokens<D> tokens(d, call.logp, call.mask);
  const auto& params = call.params;
  const double d_bound = formula::bound_or_none(params.diff_clamp),
               kl_bound = formula::bound_or_none(params.value_clamp);
  const V difference = clamped(d, Sub(in(call.ref_logp), in(call.logp)), -d_bound, d_bound);
  const auto estimate = kl_estimate(d, static_cast<KlKind>(params.kl_kind), difference);
  const V kl = IfThenElseZero(tokens.mask(), clamped(d, estimate.value, -kl_bound, kl_bound));
  V reward = in(or_number(call.scores, 0));
  if (call.sequence_rewards.is_present()) {
    V whole = in(of_row(call.sequence_rewards));
    if (params.reward_clip != decltype(params.reward_clip)::off)
      whole = clamped(d, whole, params.reward_clip_low, params.reward_clip_high);
    // The last active token, counted from 1; 0 where there is none.
    const V place = Add(tokens.positions(), number(d, 1));
    const V last = row_largest(IfThenElseZero(tokens.mask(), place));
    reward = IfThenElse(Eq(place, last), Add(reward, whole), reward);
  }
  if (params.coefficient != 0) reward = NegMulAdd(number(d, params.coefficient), kl, reward);
  out(call.rewards, IfThenElseZero(tokens.mask(), reward));
  out(call.kl, kl);
  const V active = tokens.counts(tokens.mask());
  out(of_row(call.sequence_kl), IfThenElseZero(Gt(active, Zero(d)), Div(tokens.sums(kl), active)));
})
