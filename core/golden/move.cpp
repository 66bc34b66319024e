// Elements that are chosen or copied: the declarations' formulas.
#include <rlk/sdk/ops/copy.hpp>
#include <rlk/sdk/ops/where.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/moved.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {

DataError copy(CallOf<sdk::ops::Copy>& call) {
  for_each_offset([&](int64_t x) { put_moved(call.y, call.x, x); }, call.x);
  return {};
}

DataError where(CallOf<sdk::ops::Where>& call) {
  const auto choose = [&](int64_t condition, int64_t a, int64_t b) {
    const bool holds = call.condition.load_int_at(condition) != 0;
    put_moved(call.out, holds ? call.a : call.b, holds ? a : b);
  };
  for_each_offset(choose, call.condition, call.a, call.b);
  return {};
}

}  // namespace rlk::golden
