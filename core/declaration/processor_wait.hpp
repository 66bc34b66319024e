// How long a thread was ready to run while other threads had the processors: limits on its work should not count it.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace rlk::core {

// A limit on work counts its waiting for a processor up to this: by the clock it is so many times as wide.
inline constexpr int kWidestByTheClock = 4;

// In all since it began; 0 where the kernel does not tell. `process` 0: the calling thread; else that one's main
// thread.
std::chrono::nanoseconds waited_for_processor(pid_t process = 0);

// Whether work has used up its limit (0: none) when so much time has passed by the clock, of which it waited so much.
constexpr bool is_used_up(std::chrono::nanoseconds limit, std::chrono::nanoseconds passed,
                          std::chrono::nanoseconds waited) {
  if (limit.count() == 0) return false;
  return passed > limit * kWidestByTheClock || passed - waited > limit;
}

// A limit on what the calling thread does from now on. 0 seconds, or fewer: none.
class Budget {
public:
  explicit Budget(double seconds);
  std::chrono::nanoseconds limit() const { return limit_; }
  [[nodiscard]] bool is_used_up() const;  // [the thread that made it]

private:
  std::chrono::steady_clock::time_point begin_;
  std::chrono::nanoseconds limit_, waited_before_;
};

}  // namespace rlk::core
