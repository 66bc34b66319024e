// How long a thread was ready to run while others had the processors: time that a limit on its work should not count.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace rlk::core {

// A limit on work counts its waiting for a processor up to this: by the clock it is so many times as wide.
inline constexpr int kWidestByTheClock = 4;

// In all since it began; 0 where the kernel does not tell. `process` 0: the calling thread; else that one's main
// thread.
std::chrono::nanoseconds waited_for_processor(pid_t process = 0);

// A limit on what the calling thread does from now on. 0 seconds: none.
class Budget {
public:
  explicit Budget(double seconds);
  [[nodiscard]] bool is_used_up() const;  // [the thread that made it]

private:
  std::chrono::steady_clock::time_point begin_;
  std::chrono::nanoseconds limit_, waited_before_;
};

}  // namespace rlk::core
