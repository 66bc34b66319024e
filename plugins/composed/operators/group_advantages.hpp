// Rewards less a baseline, normalised within runs of samples of the same prompt.
#include "../groups.hpp"
#include "../tokens.hpp"

namespace rlk::composed {

template <class Call>
sdk::Refusal refuse_groups(const Call& call) {
  using Baseline = decltype(call.params.baseline);
  const char* reason = nullptr;
  if (call.group_boundaries.is_present() || call.group_ids.is_present())
    reason = "groups by boundaries or ids are not composed of primitives; grouping fixed is";
  if (call.params.baseline == Baseline::opo) reason = "baseline opo is not composed of primitives";
  if (call.params.baseline == Baseline::second_best) reason = "baseline second_best is not composed of primitives";
  if (reason == nullptr) return std::nullopt;
  return sdk::Support::no("PARAMETER", reason);
}

}  // namespace rlk::composed

RLK_COMPOSED_TOKENS(GroupAdvantages, refuse_groups(call), {
  using Params = decltype(call.params);
  const Params& params = call.params;
  const auto baseline = params.baseline;
  const int64_t samples = params.samples_per_prompt > 0 ? params.samples_per_prompt : call.B;
  const Tokens<D> groups(d, in_groups(call.rewards, samples), in_groups(call.mask, samples));
  const V reward = in(in_groups(call.rewards, samples)), zero = Zero(d), one = number(d, 1);
  const Mask kept = groups.mask();
  const bool is_unbiased = params.std == decltype(params.std)::unbiased;
  const bool is_raw = params.singleton == decltype(params.singleton)::raw;
  const bool is_given = baseline == decltype(baseline)::given;

  const V count = groups.counts(kept), hidden = Neg(Inf(d));
  const V largest = row_largest(IfThenElse(kept, reward, hidden));
  const auto of_group =
      deviations_of(d, kept, reward, largest, count, is_unbiased, [&](V x) { return groups.sums(x); });
  const Mask is_single = Eq(count, one);
  V off = of_group.off;
  if (baseline == decltype(baseline)::rloo) off = Mul(off, Div(count, at_least(d, 1, Sub(count, one))));
  if (is_raw) off = IfThenElse(is_single, reward, off);
  if (is_given) off = Sub(reward, in(in_groups(call.baselines, samples)));

  V deviation = of_group.deviation;
  if (is_raw) deviation = IfThenElse(is_single, one, deviation);
  const V all = groups.batch(count);
  if (params.scale == decltype(params.scale)::batch) {
    const Tokens<D> whole(d, of_columns(call.rewards), of_columns(call.mask));
    const V highest = row_largest(IfThenElse(whole.mask(), in(of_columns(call.rewards)), hidden));
    deviation = deviations_of(d, kept, reward, highest, all, is_unbiased, [&](V x) {
                  return groups.batch(groups.sums(x));
                }).deviation;
    if (is_raw) deviation = IfThenElse(Eq(all, one), one, deviation);
  }
  V answer = off;
  if (params.scale != decltype(params.scale)::none) {
    const V eps = number(d, params.eps);
    const bool adds = params.eps_mode == decltype(params.eps_mode)::additive;
    answer = Div(off, adds ? Add(deviation, eps) : IfThenElse(Lt(deviation, eps), eps, deviation));
  }
  if (params.rescale == decltype(params.rescale)::nonzero) {
    const V nonzero = groups.batch(groups.counts(And(kept, Not(Eq(reward, zero)))));
    answer = Mul(answer, Div(all, at_least(d, 1, nonzero)));
  }
  if (!is_raw && !is_given) answer = IfThenZeroElse(And(is_single, Eq(reward, reward)), answer);
  out(in_groups(call.advantages, samples), IfThenElseZero(kept, answer));
})
