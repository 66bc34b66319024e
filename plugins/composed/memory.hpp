// Where does each intermediate of a program lie in the one workspace? Each lives from the step that makes it to the
// last that reads it, and what is not alive makes room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rlk::composed {

struct Interval {
  uint64_t bytes = 0;
  size_t first = 0, last = 0;  // steps, both included
  int reuses = -1;             // the interval, ending at `first`, whose memory this one takes over
  int64_t offset = 0;          // out
};

// Fills in the offsets, multiples of `alignment`, and answers the bytes of all. By ascending `first`.
uint64_t place(std::vector<Interval>& intervals, int64_t alignment);

}  // namespace rlk::composed
