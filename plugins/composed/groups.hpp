// groups: numbers of sequences in runs of samples of the same prompt, and what they are off their means.
#pragma once

#include "tokens.hpp"

namespace rlk::composed {

// [groups, samples] of a vector.
inline View in_groups(View view, int64_t samples) {
  if (!view.is_present()) return view;
  const int64_t rows = view.dims[0], stride = view.strides[0];
  view.dims = {samples == 0 ? 1 : rows / samples, samples};
  view.strides = {samples * stride, stride};
  return view;
}

// What rewards are off their mean, and their standard deviation, both by differences to the largest of them.
struct Deviations {
  Value off, deviation;
};
template <class D, class Sum>
Deviations deviations_of(D d, Mask kept, Value reward, Value largest, Value count, bool is_unbiased, const Sum& sum) {
  const Value one = number(d, 1), difference = Sub(reward, largest);
  const Value mean = Div(sum(IfThenElseZero(kept, difference)), at_least(d, 1, count));
  const Value off = Sub(difference, mean);
  const Value others = is_unbiased ? at_least(d, 1, Sub(count, one)) : at_least(d, 1, count);
  return {off, Sqrt(Div(sum(IfThenElseZero(kept, Mul(off, off))), others))};
}

// Rewards less a baseline, which is the mean of their group or of its others, or what is given, divided by what scale
// says: of group_advantages without the baselines that need an order, and without its count of zeros.
template <class D, class Params>
Value normalised(D d, const Params& params, const Tokens<D>& groups, Value reward, const Value* given = nullptr) {
  using Baseline = decltype(params.baseline);
  const Value one = number(d, 1), hidden = Neg(Inf(d));
  const Mask kept = groups.mask();
  const bool is_unbiased = params.std == decltype(params.std)::unbiased;
  const bool is_raw = params.singleton == decltype(params.singleton)::raw;
  const Value count = groups.counts(kept), seen = IfThenElse(kept, reward, hidden);
  const auto of_group =
      deviations_of(d, kept, reward, row_largest(seen), count, is_unbiased, [&](Value x) { return groups.sums(x); });
  const Mask is_single = Eq(count, one);
  Value off = of_group.off, deviation = of_group.deviation;
  if (params.baseline == Baseline::rloo) off = Mul(off, Div(count, at_least(d, 1, Sub(count, one))));
  if (is_raw) off = IfThenElse(is_single, reward, off);
  if (given != nullptr) off = Sub(reward, *given);
  if (is_raw) deviation = IfThenElse(is_single, one, deviation);
  if (params.scale == decltype(params.scale)::batch) {
    const Value all = groups.batch(count);
    const Value highest = row_largest(reshaped(seen, {1, groups.sequences() * groups.length()}));
    deviation = deviations_of(d, kept, reward, highest, all, is_unbiased, [&](Value x) {
                  return groups.batch(groups.sums(x));
                }).deviation;
    if (is_raw) deviation = IfThenElse(Eq(all, one), one, deviation);
  }
  Value answer = off;
  if (params.scale != decltype(params.scale)::none) {
    const Value eps = number(d, params.eps);
    const bool adds = params.eps_mode == decltype(params.eps_mode)::additive;
    answer = Div(off, adds ? Add(deviation, eps) : IfThenElse(Lt(deviation, eps), eps, deviation));
  }
  if (!is_raw && given == nullptr) answer = IfThenZeroElse(And(is_single, Eq(reward, reward)), answer);
  return IfThenElseZero(kept, answer);
}

}  // namespace rlk::composed
