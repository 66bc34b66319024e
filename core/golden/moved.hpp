// Elements that are moved or counted, and not computed.
#pragma once

#include "core/golden/golden.hpp"

namespace rlk::golden {

// Appends an element of the output's own dtype; of an integer all bits count.
inline void put_moved(Output& output, const View& from, int64_t offset) {
  output.value.push_back(from.load_at(offset));
  output.cond.push_back(0.0);
  if (!sdk::is_floating(from.dtype)) output.exact.push_back(from.load_int_at(offset));
}

inline void put_integer(Output& output, int64_t value) {
  output.value.push_back(static_cast<double>(value));
  output.cond.push_back(0.0);
  output.exact.push_back(value);
}

}  // namespace rlk::golden
