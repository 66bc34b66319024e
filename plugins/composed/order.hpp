// order: rows in order. The program asks a vendor for the rising order of rows without a NaN, equals in the order of
// their places: no vendor documents what it makes of a NaN, of 0 beside -0, and of equals in falling order.
#pragma once

#include <limits>

#include "rows.hpp"

namespace rlk::composed {

// The places of the first `count` numbers of each row. A falling order is the rising one of the opposite numbers.
template <class D>
Value order_of(D d, Value x, sdk::Dtype dtype, bool is_descending, int64_t count) {
  const Value opposite = is_descending ? Neg(x) : x;
  const Value key = IfThenElse(Eq(opposite, Zero(d)), Zero(d), opposite);
  // A NaN is the largest: at the end of a rising order, at the start of a falling one.
  const Value end = is_descending ? Neg(Inf(d)) : Inf(d);
  const Mask is_nan = IsNaN(x);
  if (sdk::bits_of(dtype) == 16) {
    // No number of 16 bits is as large as the largest of fp32, which is then between them and a NaN.
    constexpr auto kLargest = static_cast<double>(std::numeric_limits<float>::max());
    const Value before_end = number(d, is_descending ? -kLargest : kLargest);
    return first_in_order(IfThenElse(is_nan, end, IfThenElse(Eq(key, end), before_end, key)), count);
  }
  // A NaN stands among the infinite ones first, and a second order of two numbers parts them.
  const auto columns = x.recorder->nodes()[static_cast<size_t>(x.node)].dims.back();
  const Value first = first_in_order(IfThenElse(is_nan, end, key), columns);
  const Value one = number(d, 1),
              part = is_descending ? IfThenElse(is_nan, Zero(d), one) : IfThenElse(is_nan, one, Zero(d));
  return at_column(first, first_in_order(at_column(part, first), count));
}

}  // namespace rlk::composed
