// groups: numbers of sequences in runs of samples of the same prompt, and what they are off their means.
#pragma once

#include "rows.hpp"

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

}  // namespace rlk::composed
