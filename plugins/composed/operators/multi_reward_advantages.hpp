// Several rewards of each sample, weighted and normalised within runs of samples of the same prompt.
#include "../groups.hpp"

namespace rlk::composed {

template <class Call>
sdk::Refusal refuse_rewards(const Call& call) {
  if (!call.group_boundaries.is_present() && !call.group_ids.is_present()) return std::nullopt;
  return sdk::Support::no("PARAMETER", "groups by boundaries or ids are not composed of primitives; grouping fixed is");
}

}  // namespace rlk::composed

RLK_COMPOSED_TOKENS(MultiRewardAdvantages, refuse_rewards(call), {
  const auto& params = call.params;
  const View like = in_groups(call.advantages, params.samples_per_prompt > 0 ? params.samples_per_prompt : call.B);
  const V zero = Zero(d), rewards = in(call.rewards), weights = in(or_number(of_columns(call.weights), 1));
  // Masks as numbers, of which columns are copied.
  const Tokens<D> samples(d, call.rewards, call.mask);
  const V has = samples.ones(samples.mask());
  const auto groups_of = [&](V marks) {
    return Tokens<D>(d, Ne(reshaped(marks, like.dims), zero), like.dims[0], like.dims[1]);
  };
  if (params.combine == decltype(params.combine)::sum_then_normalize) {
    const V sum = row_sum(IfThenElseZero(samples.mask(), Mul(rewards, weights)));
    const Tokens<D> groups = groups_of(samples.sums(has));
    out(like, normalised(d, params, groups, reshaped(sum, like.dims)));
    return;
  }
  V sum = zero;
  for (int64_t k = 0; k < call.K; ++k) {
    const Tokens<D> groups = groups_of(column_of(has, k));
    const V own = normalised(d, params, groups, reshaped(column_of(rewards, k), like.dims));
    sum = Add(sum, IfThenElseZero(groups.mask(), Mul(own, column_of(weights, k))));
  }
  out(like, sum);
})
