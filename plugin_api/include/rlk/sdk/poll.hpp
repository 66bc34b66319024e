// Waiting with a deadline where the vendor's runtime only answers "done or not".
#pragma once

#include <rlk/abi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace rlk::sdk {

// Asks until there is another answer than RLK_NOT_READY; RLK_TIMEOUT when timeout_ns have passed (0: after one
// question, UINT64_MAX: never). Spins at first, because most waits are short, then sleeps between the questions.
template <class Ask>
rlk_status poll(uint64_t timeout_ns, Ask&& ask) {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kSpinNs = 200000, kSleepNs = 50000;
  const Clock::time_point start = Clock::now();
  for (uint64_t turn = 0;; ++turn) {
    const rlk_status status = ask();
    if (status != RLK_NOT_READY) return status;
    const auto waited =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
    if (timeout_ns != UINT64_MAX && waited >= timeout_ns) return RLK_TIMEOUT;
    if (waited > kSpinNs) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(timeout_ns - waited, kSleepNs)));
    } else if (turn > 16) {
      std::this_thread::yield();
    }
  }
}

}  // namespace rlk::sdk
