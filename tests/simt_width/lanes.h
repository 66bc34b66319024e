// What the kernel `lanes` leaves of each thread, the same for the kernel and for the test that checks it.
#pragma once

#include <cstdint>

namespace rlk::simt {

constexpr int kLanesThreads = 256;

struct LanesResult {
  int32_t far;        // what the lane half a wave away gave: its thread's number
  int32_t read;       // what lane (7 own + 3) gave: its thread's number
  uint64_t every3rd;  // ballot of (own lane % 3 == 0)
  double sum;         // of all lanes' threads' numbers, by a butterfly
};

struct LanesArgs {
  LanesResult* result;  // [kLanesThreads]
};

}  // namespace rlk::simt
