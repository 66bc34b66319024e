// The sum of what a token's experts give.
#include "../tokens.hpp"

namespace rlk::composed {

// One of the middle dimension.
inline View middle(View view, int64_t index) {
  view.byte_offset += index * view.strides[1] * sdk::bytes_of(view.dtype);
  view.dims.erase(view.dims.begin() + 1);
  view.strides.erase(view.strides.begin() + 1);
  return view;
}

}  // namespace rlk::composed

// With what each sum loses, where there is no fp64.
RLK_COMPOSED_ROWS(MoeSum, {
  V sum = Zero(d), lost = Zero(d);
  for (int64_t k = 0; k < call.K; ++k) {
    const V x = in(middle(call.x, k));
    if (k == 0) {
      sum = x;
      continue;
    }
    const V next = Add(sum, x), part = Sub(next, sum);
    lost = Add(lost, Add(Sub(sum, Sub(next, part)), Sub(x, part)));
    sum = next;
  }
  // What is infinite or NaN has lost nothing.
  out(call.y, IfThenElse(IsFinite(lost), Add(sum, lost), sum));
})
