// Rewards less a baseline, normalised within runs of samples of the same prompt.
#include "../groups.hpp"

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
  const auto& params = call.params;
  const int64_t samples = params.samples_per_prompt > 0 ? params.samples_per_prompt : call.B;
  const Tokens<D> groups(d, in_groups(call.rewards, samples), in_groups(call.mask, samples));
  const V reward = in(in_groups(call.rewards, samples)), given = in(or_number(in_groups(call.baselines, samples), 0));
  const bool is_given = params.baseline == decltype(params.baseline)::given;
  V answer = normalised(d, params, groups, reward, is_given ? &given : nullptr);
  if (params.rescale == decltype(params.rescale)::nonzero) {
    const Mask kept = groups.mask();
    const V nonzero = groups.batch(groups.counts(And(kept, Not(Eq(reward, Zero(d))))));
    answer = Mul(answer, Div(groups.batch(groups.counts(kept)), at_least(d, 1, nonzero)));
  }
  out(in_groups(call.advantages, samples), answer);
})
