// First fit, in the order in which intermediates are made.
#include "memory.hpp"

#include <algorithm>

namespace rlk::composed {

uint64_t place(std::vector<Interval>& intervals, int64_t alignment) {
  const auto size_of = [&](const Interval& one) {
    return (static_cast<int64_t>(one.bytes) + alignment - 1) / alignment * alignment;
  };
  int64_t end = 0;
  for (size_t i = 0; i < intervals.size(); ++i) {
    Interval& own = intervals[i];
    if (own.reuses >= 0) {
      own.offset = intervals[static_cast<size_t>(own.reuses)].offset;
      continue;
    }
    std::vector<const Interval*> alive;
    for (size_t k = 0; k < i; ++k) {
      if (intervals[k].last >= own.first) alive.push_back(&intervals[k]);
    }
    std::sort(alive.begin(), alive.end(), [](const Interval* a, const Interval* b) { return a->offset < b->offset; });
    own.offset = 0;
    for (const Interval* other : alive) {
      if (own.offset + size_of(own) <= other->offset) break;
      own.offset = std::max(own.offset, other->offset + size_of(*other));
    }
    end = std::max(end, own.offset + size_of(own));
  }
  return static_cast<uint64_t>(end);
}

}  // namespace rlk::composed
