// The implementations of all operators: every file of operators/, found by where it stands (operators.inc, which the
// build makes, includes each).
#pragma once

#include <rlk/sdk/ops.hpp>

#include <tuple>
#include <utility>

#include "map.hpp"
#include "rows.hpp"
#include "scores.hpp"
#include "tokens.hpp"

namespace rlk::composed::listed {

template <int>
struct Numbered;
constexpr int kFirst = __COUNTER__ + 1;

}  // namespace rlk::composed::listed

#define RLK_COMPOSED_LISTED(Operator)           \
  namespace rlk::composed {                     \
  extern template struct Composition<Operator>; \
  }                                             \
  namespace rlk::composed::listed {             \
  template <>                                   \
  struct Numbered<__COUNTER__ - kFirst> {       \
    using type = Operator;                      \
  };                                            \
  }

#include "operators.inc"

namespace rlk::composed {

namespace listed {
constexpr int kCount = __COUNTER__ - kFirst;
template <class Vendor, int... number>
std::tuple<Implementation<Vendor, typename Numbered<number>::type>...> all(std::integer_sequence<int, number...>);
}  // namespace listed

// With a vendor's implementations of its own before them.
template <class Vendor, class... Own>
using Implementations = decltype(std::tuple_cat(
    std::declval<std::tuple<Own...>>(), listed::all<Vendor>(std::make_integer_sequence<int, listed::kCount>())));

}  // namespace rlk::composed
