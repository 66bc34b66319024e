// Timing: of calls, and of the memory that bounds them.
#pragma once

#include <cstdint>

#include "loader/cli/execution.hpp"

namespace rlk::cli {

struct Timing {
  double median_us = 0;
  double min_us = 0;
  int repeats = 0;
};

// Warms up, then repeats the call for about `seconds`, at least five times. By the device's events where it has them
// and works asynchronously, else by the host's clock. Throws Failure when a call fails, also for a data error.
Timing time_calls(Session* session, Execution* execution, double seconds);

// Bytes read plus bytes written per second by a large copy within the memory of the session's device; on the CPU by
// all its threads together. 0 when it cannot be measured.
double copy_bytes_per_second(Session* session);

}  // namespace rlk::cli
